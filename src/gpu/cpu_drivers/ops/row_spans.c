#include "gpu/cpu_drivers/ops/row_spans.h"

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

struct tsr_row_spans tsr__row_spans_of(tsr__row_cut cut, uint32_t extent)
{
    struct tsr_row_spans spans = {.extent = extent, .across = cut.across};

    tsr__walk_divisor(spans.across, &spans.magic, &spans.shift);
    return spans;
}

void tsr__row_spans_take(struct tsr_row_spans *spans, uint64_t rows_left, uint32_t groups[3])
{
    spans->rows = (uint32_t)tsr__min_u64(TSR__MAX_SPANS / spans->across, rows_left);
    groups[0] = tsr__div_up_u32(spans->rows * spans->across, TSR__SPAN_SUBGROUPS);
    groups[1] = groups[2] = 1;
}
