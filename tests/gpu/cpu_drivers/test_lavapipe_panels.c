/* Packing operands into panels (panels.h): copies in the order in which kernels read them. A
 * panel holds one stretch of k, that is, the range of k that one dispatch computes. Every
 * element must be at its place with its value, elements that a stretch skips must be 0, and
 * nothing else may be written. */
#include <stdlib.h>
#include <string.h>

#include "base/float16.h"
#include "base/instruction_sets.h"
#include "gpu/cpu_drivers/matmul/panel_loops.h"
#include "gpu/cpu_drivers/matmul/panels.h"
#include "support/check_main.h"
#include "support/random.h"

enum {
    LINES = TSR__LAVAPIPE_PANEL_LINES,
};

static const uint32_t poison = 0x7fc0dead;

/* Returns the value of element k of a line (a row of a or a column of b). */
static float number(uint32_t line, uint32_t k)
{
    return (float)(1 + (line * 31 + k * 7) % 251); /* bf16 represents it exactly in eight bits */
}

static void put(char *at, tsr_dtype dtype, float value)
{
    uint16_t half;

    switch (dtype) {
    case TSR_F16:
        half = tsr__f16_of_f32(value);
        memcpy(at, &half, sizeof half);
        break;
    case TSR_BF16:
        half = tsr__bf16_of_f32(value);
        memcpy(at, &half, sizeof half);
        break;
    default:
        memcpy(at, &value, sizeof value);
    }
}

typedef struct panels {
    tsr__lavapipe_product product;
    tsr__lavapipe_lines lines;
    float *packed;
} panels;

/* Returns the index in its line of the element that lane `lane` reads in step `step` of a
 * stretch. */
static uint32_t element_of(const panels *p, const tsr__lavapipe_stretch *s, uint32_t step,
                           uint32_t lane)
{
    const uint32_t lanes = p->product.lanes;

    if (p->lines.words && s->words)
        return step / 2 * 2 * lanes + 2 * lane + step % 2;
    return step * lanes + lane;
}

static void check_panel(const panels *p, const tsr__lavapipe_stretch *s, uint32_t first_line,
                        const float *panel)
{
    const uint32_t lanes = p->product.lanes;

    for (uint32_t at = 0; at < s->steps * LINES * lanes; at++) {
        const uint32_t line = first_line + at / lanes % LINES;
        const uint32_t element = element_of(p, s, at / lanes / LINES, at % lanes);
        uint32_t bits;
        memcpy(&bits, &panel[at], sizeof bits);
        if (line >= p->lines.count)
            ck_assert(bits == poison);
        else if (element < s->skip)
            ck_assert(bits == 0);
        else
            ck_assert(panel[at] == number(line, s->k + element));
    }
}

static void check_panels(const panels *p)
{
    const float *at = p->packed;
    uint32_t k = 0;

    while (k < p->product.k) {
        const tsr__lavapipe_stretch s = tsr__lavapipe_stretch_after(&p->product, k);
        const uint32_t length = s.steps * p->product.lanes;
        ck_assert(s.k + s.skip == k && s.skip < length);
        for (uint32_t line = 0; line < p->lines.count; line += LINES) {
            check_panel(p, &s, line, at);
            at += (size_t)LINES * length;
        }
        k += length;
    }
    ck_assert((uint64_t)(at - p->packed) == tsr__lavapipe_panels_size(&p->product, p->lines.count));
}

static void run(panels *p, uint32_t gap)
{
    const bool turned = p->lines.k != 1;
    const uint32_t k = p->product.k, count = p->lines.count;
    const size_t bytes = tsr_dtype_size(p->lines.dtype);
    const size_t pitch = (turned ? count : k) + gap;
    const uint64_t size = tsr__lavapipe_panels_size(&p->product, count);
    char *from = malloc((turned ? k : count) * pitch * bytes);

    p->packed = malloc((size + 1) * sizeof *p->packed);
    ck_assert_ptr_nonnull(from);
    ck_assert_ptr_nonnull(p->packed);
    memset(from, 0xff, (turned ? k : count) * pitch * bytes);
    for (uint32_t line = 0; line < count; line++)
        for (uint32_t i = 0; i < k; i++)
            put(from + (turned ? i * pitch + line : line * pitch + i) * bytes, p->lines.dtype,
                number(line, i));
    for (uint64_t i = 0; i <= size; i++)
        memcpy(&p->packed[i], &poison, sizeof poison);
    p->lines.from = from;
    *(turned ? &p->lines.k : &p->lines.line) = (int64_t)pitch;
    tsr__lavapipe_panels_pack(&p->product, &p->lines, p->packed);
    check_panels(p);
    ck_assert(memcmp(&p->packed[size], &poison, sizeof poison) == 0);
    free(p->packed);
    free(from);
}

/* `_i` is the number of lanes as a power of two. */
START_TEST(every_element_at_its_place)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16, TSR_BF16};
    const uint32_t lanes = 1U << _i;
    uint64_t random = (uint64_t)_i;

    for (int i = 0; i < 40; i++) {
        const uint32_t k = (uint32_t)random_between(&random, 64 * lanes, 300 * lanes);
        panels p = {.product = {.form = TSR__LAVAPIPE_NT,
                                .m = 4096,
                                .n = 4096,
                                .k = i % 5 ? k : k / (32 * lanes) * 32 * lanes,
                                .lanes = lanes},
                    .lines = {.dtype = dtypes[i % 4],
                              .count = (uint32_t)random_between(&random, 1, 200),
                              .line = 1,
                              .k = i / 4 % 2 ? 2 : 1,
                              .words = i % 4 == 3}};
        p.product.method = tsr__lavapipe_resolve(&p.product);
        ck_assert(tsr__lavapipe_takes_panels(&p.product));
        run(&p, (uint32_t)random_between(&random, 0, 9));
    }
}
END_TEST

/* The operands are large enough that several threads pack them. */
START_TEST(megabytes)
{
    panels p = {.product = {.form = TSR__LAVAPIPE_NT, .m = 99, .n = 99, .k = 3000, .lanes = 8},
                .lines = {.dtype = _i ? TSR_F16 : TSR_F32, .count = 1501, .line = 1, .k = 1 + _i}};

    p.product.method = tsr__lavapipe_resolve(&p.product);
    run(&p, 1);
}
END_TEST

#define LOOPS_K 1024

/* Returns the f32 bits of element i of a line of 16-bit elements. */
static uint32_t widened(const uint16_t *line, uint32_t i, tsr__panel_source source, uint32_t lanes)
{
    float value;
    uint32_t bits;

    if (source == TSR__PANEL_F32) {
        memcpy(&bits, &line[(size_t)2 * i], sizeof bits);
        return bits;
    }
    if (source == TSR__PANEL_BF16_WORDS)
        i = i / (2 * lanes) * 2 * lanes + i % lanes * 2 + i / lanes % 2;
    if (source != TSR__PANEL_F16)
        return (uint32_t)line[i] << 16;
    value = tsr__f32_of_f16(line[i]);
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Checks that the panel has the expected bits for the first `lines` lines, and is unchanged for
 * the others. A NaN of f16 may become any NaN. */
static void check_lines(const uint32_t *panel, const uint16_t *from, size_t pitch, uint32_t lines,
                        tsr__panel_source source, uint32_t lanes)
{
    for (uint32_t at = 0; at < LOOPS_K * LINES; at++) {
        const uint32_t step = at / lanes / LINES;
        const uint32_t line = at / lanes % LINES;
        const uint32_t want =
            line >= lines ? poison
                          : widened(from + line * pitch, step * lanes + at % lanes, source, lanes);
        const bool is_nan = source == TSR__PANEL_F16 && (want & 0x7fffffffU) > 0x7f800000U;
        ck_assert(panel[at] == want || (is_nan && (panel[at] & 0x7fffffffU) > 0x7f800000U));
    }
}

/* Tests lines that contain all values of 16 bits, from an unaligned address. */
static void check_loops(const tsr__panel_loops *loops, tsr__panel_source source, uint32_t lanes)
{
    static uint16_t from[LINES * 2 * LOOPS_K + 1];
    static _Alignas(64) uint32_t panel[LOOPS_K * LINES];
    const size_t pitch = source == TSR__PANEL_F32 ? 2 * LOOPS_K : LOOPS_K;

    for (uint32_t first = 0; first < 1U << 16; first += LINES * LOOPS_K)
        for (uint32_t lines = first == 0 ? 1 : LINES; lines <= LINES; lines++) {
            for (uint32_t i = 0; i < sizeof from / sizeof *from; i++)
                from[i] = (uint16_t)(first + i - 1);
            for (uint32_t i = 0; i < sizeof panel / sizeof *panel; i++)
                panel[i] = poison;
            loops->pack((float *)panel, (const char *)(from + 1), pitch * sizeof *from, lines,
                        LOOPS_K / lanes, lanes, source);
            loops->finish();
            check_lines(panel, from + 1, pitch, lines, source, lanes);
        }
}

/* Tests the loops for each instruction set that this processor has. */
START_TEST(loops_of_every_level)
{
    static const void *const levels[] = TSR__INSTRUCTION_SET_TABLES(tsr__panel_loops_);
    const tsr__panel_loops *loops;
    int count = 0;

    for (; (loops = tsr__instruction_set_at(levels, count)); count++)
        for (int source = TSR__PANEL_F32; source <= TSR__PANEL_BF16_WORDS; source++)
            for (uint32_t lanes = loops->width; lanes <= 16; lanes *= 2)
                check_loops(loops, (tsr__panel_source)source, lanes);
    ck_assert_int_ge(count, 1);
}
END_TEST

TESTS(lavapipe_panels)
{
    tcase_add_test(tests, loops_of_every_level);
    tcase_add_loop_test(tests, every_element_at_its_place, 2, 5);
    tcase_add_loop_test(tests, megabytes, 0, 2);
}
