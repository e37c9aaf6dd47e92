#include "rng/threefry_loops.h"

#include "base/loops.h"
#include "rng/threefry_rounds.h"

static void pairs(tsr_threefry_key key, uint32_t first, uint32_t second, size_t count,
                  uint32_t *low, uint32_t *high)
{
    TSR__VECTORIZE for (size_t i = 0; i < count; i++)
    {
        uint32_t x0 = first + (uint32_t)i, x1 = second + (uint32_t)i;
        tsr__threefry_rounds(key.words[0], key.words[1], &x0, &x1);
        low[i] = x0;
        high[i] = x1;
    }
}

const tsr__threefry_loops TSR__INSTRUCTION_SET_NAME(tsr__threefry_loops_) = {.pairs = pairs};
