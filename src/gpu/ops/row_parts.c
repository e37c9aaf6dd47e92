#include "gpu/ops/row_parts.h"

#include "base/checked.h"

tsr__row_cut tsr__cut_row(uint32_t count, uint32_t lanes, uint32_t most)
{
    const uint32_t ends = most / 8;
    tsr__row_cut best = {0, 0};
    uint64_t least = UINT64_MAX;

    for (uint32_t steps = most; steps > 0; steps /= 2) {
        uint32_t across = tsr__div_up_u32(count, steps * lanes);
        uint64_t covered = (uint64_t)across * (steps + ends);
        if (steps * lanes <= count && covered < least) {
            best = (tsr__row_cut){steps, across};
            least = covered;
        }
    }
    return best;
}
