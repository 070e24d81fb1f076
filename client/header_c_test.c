/* vuda.h is C: this file is compiled as C11, without extensions, and every call is linked. */
#include <stdio.h>
#include <string.h>

#include "vuda/vuda.h"

_Static_assert(sizeof(struct vuda_state) == 512, "the first version of the structure has 512 bytes");

int main(void) {
    struct vuda_state state;
    memset(&state, 0, sizeof state);
    state.size = sizeof state;
    if (vuda_version() != VUDA_VERSION || vuda_get_state(&state) != VUDA_OK || state.state != VUDA_STATE_NONE) return 1;
    if (vuda_register("game") != VUDA_E_NO_SHIM || vuda_attach("game") != VUDA_E_NO_SHIM) return 2;
    if (vuda_reserve(VUDA_ALL_CHANNELS) != VUDA_E_NO_SHIM || vuda_detach() != VUDA_E_NO_SHIM) return 3;
    return puts(vuda_last_error()) < 0;
}
