#include "gpu/cpu_drivers/ops/row_parts.h"

#include "base/checked.h"
#include "gpu/ops/common/walk.h"

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

struct tsr_row_parts tsr__row_parts_of(tsr__row_cut cut, uint32_t extent)
{
    struct tsr_row_parts parts = {.extent = extent, .across = cut.across};

    tsr__walk_divisor(parts.across, &parts.magic, &parts.shift);
    return parts;
}

void tsr__row_parts_take(struct tsr_row_parts *parts, uint64_t rows_left, uint32_t groups[3])
{
    parts->rows = (uint32_t)tsr__min_u64(TSR__MAX_PARTS / parts->across, rows_left);
    groups[0] = tsr__div_up_u32(parts->rows * parts->across, TSR__PARTS_SUBGROUPS);
    groups[1] = groups[2] = 1;
}
