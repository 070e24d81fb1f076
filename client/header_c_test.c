/* vuda.h is C: this file is compiled as C11, without extensions, and every call is linked. */
#include <stdio.h>
#include <string.h>

#include "vuda/vuda.h"

_Static_assert(sizeof(struct vuda_state) == 512, "the first version of the structure has 512 bytes");
_Static_assert(sizeof(struct vuda_partition) == 512, "the first version of the structure has 512 bytes");

_Static_assert(sizeof(struct vuda_slo) == 56, "the first version of the structure has 56 bytes");
_Static_assert(sizeof(struct vuda_allowed) == 32, "the first version of the structure has 32 bytes");

int main(void) {
    struct vuda_state state;
    memset(&state, 0, sizeof state);
    state.size = sizeof state;
    if (vuda_version() != VUDA_VERSION || vuda_get_state(&state) != VUDA_OK || state.state != VUDA_STATE_NONE) return 1;
    if (vuda_register("game") != VUDA_E_NO_SHIM || vuda_attach("game") != VUDA_E_NO_SHIM) return 2;
    if (vuda_reserve(VUDA_ALL_CHANNELS) != VUDA_E_NO_SHIM || vuda_detach() != VUDA_E_NO_SHIM) return 3;
    struct vuda_partition partition;
    memset(&partition, 0, sizeof partition);
    partition.size = sizeof partition;
    if (vuda_get_partition(&partition) != VUDA_OK || partition.backend != VUDA_BACKEND_UNKNOWN) return 4;
    if (vuda_set_mode(VUDA_MODE_INTER_SM) != VUDA_E_NO_SHIM || vuda_set_quota(VUDA_QUOTA_AUTO) != VUDA_E_NO_SHIM)
        return 5;
    struct vuda_slo slo = {sizeof slo, 0, 16.67, 0.01, 0, 0, 0, 0};
    if (vuda_set_slo(&slo) != VUDA_E_NO_SHIM || vuda_set_slo(NULL) != VUDA_E_NO_SHIM) return 6;
    const uint32_t user = 1000;
    struct vuda_allowed allowed = {sizeof allowed, 1, &user, NULL, 0, 0};
    if (vuda_set_allowed(&allowed) != VUDA_E_NO_SHIM || vuda_set_allowed(NULL) != VUDA_E_NO_SHIM) return 7;
    if (vuda_set_over_limit(VUDA_OVER_LIMIT_UNSHARE) != VUDA_E_NO_SHIM) return 8;
    vuda_step_begin(1);
    vuda_step_end(1);
    return puts(vuda_last_error()) < 0;
}
