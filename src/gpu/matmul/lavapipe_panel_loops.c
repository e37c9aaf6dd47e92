#include "gpu/matmul/lavapipe_panel_loops.h"

#include <string.h>

#include "gpu/matmul/lavapipe_plan.h"

enum {
    WORDS = 4, /* of a vector */
};

typedef uint32_t words __attribute__((vector_size(WORDS * sizeof(uint32_t))));

/* With a size that is known to the compiler a copy is a few instructions. */
static inline void interleave(float *to, const float *from, uint64_t pitch, uint64_t lines,
                              uint64_t steps, uint64_t lanes)
{
    for (uint64_t step = 0; step < steps; step++)
        for (uint64_t line = 0; line < lines; line++)
            memcpy(to + (step * TSR__LAVAPIPE_PANEL_LINES + line) * lanes,
                   from + line * pitch + step * lanes, lanes * sizeof *to);
}

static void interleave_whole(float *to, const float *from, uint64_t pitch, uint32_t steps,
                             uint32_t lanes)
{
    const uint32_t lines = TSR__LAVAPIPE_PANEL_LINES;

    switch (lanes) {
    case 4:
        interleave(to, from, pitch, lines, steps, 4);
        break;
    case 8:
        interleave(to, from, pitch, lines, steps, 8);
        break;
    default:
        interleave(to, from, pitch, lines, steps, 16);
    }
}

void tsr__panel_interleave(float *to, const float *from, uint64_t pitch, uint32_t lines,
                           uint32_t steps, uint32_t lanes)
{
    if (lines == TSR__LAVAPIPE_PANEL_LINES)
        interleave_whole(to, from, pitch, steps, lanes);
    else
        interleave(to, from, pitch, lines, steps, lanes);
}

void tsr__panel_widen_words(float *to, const uint16_t *from, uint32_t steps, uint32_t lanes)
{
    for (uint32_t at = 0; at < steps * lanes; at += 2 * lanes)
        for (uint32_t lane = 0; lane < lanes; lane += WORDS) {
            words both, even, odd;
            memcpy(&both, &from[at + 2 * lane], sizeof both);
            even = both << 16;
            odd = both & 0xffff0000U;
            memcpy(&to[at + lane], &even, sizeof even);
            memcpy(&to[at + lanes + lane], &odd, sizeof odd);
        }
}
