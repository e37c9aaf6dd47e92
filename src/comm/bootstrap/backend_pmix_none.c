/* Replaces backend_pmix.c in a build without PMIx. */
#include "base/error.h"
#include "comm/bootstrap/backend.h"

tsr_status tsr__bootstrap_open_pmix(const tsr__bootstrap_params *params,
                                    tsr__bootstrap_place *place,
                                    const tsr__bootstrap_backend **backend, void **state)
{
    (void)params, (void)place, (void)backend, (void)state;
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "bootstrap: this process was started through PMIx, but this tessera was built "
                     "without it; TESSERA_BOOT=env uses RANK, WORLD_SIZE and MASTER_ADDR instead");
}
