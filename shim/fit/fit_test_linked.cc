// Asks the driver that it is linked to, as Triton's helper does.
extern "C" {
int cuDeviceGetAttribute(int* value, int attribute, int device);
__attribute__((visibility("default"))) int ask(int* value, int attribute, int device) {
    return cuDeviceGetAttribute(value, attribute, device);
}
}
