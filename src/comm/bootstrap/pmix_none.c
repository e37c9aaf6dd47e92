/* A build without PMIx. */
#include "base/error.h"
#include "comm/bootstrap/impl.h"

tsr_status tsr__boot_open_pmix(const tsr__boot_params *params, tsr__boot_place *place,
                               const tsr__boot_way **way, void **state)
{
    (void)params, (void)place, (void)way, (void)state;
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "boot: this process was started through PMIx, but this tessera was built "
                     "without it; TESSERA_BOOT=env uses RANK, WORLD_SIZE and MASTER_ADDR instead");
}
