/* A statically linked program: LD_PRELOAD cannot reach it. */
#include <stdio.h>

int main(void) { return puts("static") < 0; }
