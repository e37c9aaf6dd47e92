/* Packs operands into panels; panels.h describes them. A line is a row of a or a column of b. A
 * band is the lines that a thread packs together. */
#include "gpu/cpu_drivers/matmul/panels.h"

#include "base/checked.h"
#include "base/instruction_sets.h"
#include "gpu/cpu_drivers/matmul/panel_loops.h"
#include "gpu/host/threads.h"
#include "gpu/host/transpose.h"

enum {
    /* Column-major operands are transposed in blocks of TRANSPOSED_K elements of k. For each k, a
     * block has TRANSPOSED_BYTES bytes of neighbouring lines, because fewer are slow to fetch. */
    TRANSPOSED_BYTES = 256,
    TRANSPOSED_K = 128,
};

static const void *const instruction_sets[TSR__INSTRUCTION_SETS] =
    TSR__INSTRUCTION_SET_TABLES(tsr__panel_loops_);

typedef struct pack {
    const tsr__lavapipe_product *product;
    const tsr__lavapipe_lines *lines;
    uint32_t panel_lines; /* the number of lines in all panels of the operand */
    float *to;
    const tsr__panel_loops *loops;
} pack;

/* The lines and the elements of k that are packed at once. */
typedef struct block {
    uint32_t line, lines, k, count;
    uint32_t zeros; /* the number of elements at the start of each line that are set to 0 */
    bool words;
} block;

uint32_t tsr__lavapipe_panel_lines(uint32_t count)
{
    return tsr__div_up_u32(count, TSR__LAVAPIPE_PANEL_LINES) * TSR__LAVAPIPE_PANEL_LINES;
}

/* The number of lines that one thread packs together. */
static uint32_t band_lines(const tsr__lavapipe_lines *lines)
{
    return TRANSPOSED_BYTES / (uint32_t)tsr_dtype_size(lines->dtype);
}

static uint32_t length_of(const tsr__lavapipe_product *p, tsr__lavapipe_stretch stretch)
{
    return stretch.steps * p->lanes;
}

uint64_t tsr__lavapipe_panels_size(const tsr__lavapipe_product *p, uint32_t lines)
{
    uint32_t k = 0;

    while (k < p->k)
        k += length_of(p, tsr__lavapipe_stretch_after(p, k));
    return (uint64_t)k * tsr__lavapipe_panel_lines(lines);
}

/* Sets the first `count` elements of each line to 0. */
static void clear(float *panel, uint32_t lines, uint32_t count, uint32_t lanes)
{
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t line = 0; line < lines; line++)
            panel[(i / lanes * TSR__LAVAPIPE_PANEL_LINES + line) * lanes + i % lanes] = 0;
}

static const char *source(const pack *w, uint32_t line, uint32_t k)
{
    const tsr__lavapipe_lines *lines = w->lines;

    return (const char *)lines->from +
           (line * lines->line + k * lines->k) * (int64_t)tsr_dtype_size(lines->dtype);
}

/* Chooses the fastest loops for this number of lanes and this alignment of `to`. The base loops
 * support any. */
static const tsr__panel_loops *choose_loops(uint32_t lanes, const float *to)
{
    const tsr__panel_loops *best = tsr__instruction_set_best(instruction_sets);
    const bool fits = lanes % best->width == 0 && (uintptr_t)to % (best->width * sizeof *to) == 0;

    return fits ? best : &tsr__panel_loops_base;
}

static tsr__panel_source source_of(const pack *w, const block *b)
{
    switch (w->lines->dtype) {
    case TSR_F16:
        return TSR__PANEL_F16;
    case TSR_BF16:
        return b->words ? TSR__PANEL_BF16_WORDS : TSR__PANEL_BF16;
    default:
        return TSR__PANEL_F32;
    }
}

/* Packs one block. `to` points to the place of the block's first element in the panel of the first
 * line. `length` is the number of elements that a panel has of each line. */
static void pack_block(const pack *w, const block *b, float *to, uint32_t length)
{
    _Alignas(64) char transposed[TRANSPOSED_BYTES * TRANSPOSED_K];
    /* The base loops use ordinary stores, so that clear() may overwrite their results. */
    const tsr__panel_loops *loops = b->zeros > 0 ? &tsr__panel_loops_base : w->loops;
    const uint32_t lanes = w->product->lanes, bytes = (uint32_t)tsr_dtype_size(w->lines->dtype);
    const char *from = source(w, b->line, b->k);
    uint64_t pitch = (uint64_t)w->lines->line * bytes;

    if (w->lines->k != 1) {
        pitch = (uint64_t)b->count * bytes;
        tsr__host_transpose(transposed, pitch, from, (uint64_t)w->lines->k * bytes, b->lines,
                            b->count, bytes);
        from = transposed;
    }
    for (uint32_t line = 0; line < b->lines; line += TSR__LAVAPIPE_PANEL_LINES) {
        const uint32_t lines = tsr__min_u32(TSR__LAVAPIPE_PANEL_LINES, b->lines - line);
        float *panel = to + (uint64_t)line * length;
        loops->pack(panel, from + line * pitch, pitch, lines, b->count / lanes, lanes,
                    source_of(w, b));
        clear(panel, lines, b->zeros, lanes);
    }
}

/* Packs one stretch (a range of k, plan.h) of some lines. `to` points to the panel of the first
 * line. */
static void pack_stretch(const pack *w, uint32_t line, uint32_t lines, tsr__lavapipe_stretch s,
                         float *to)
{
    const uint32_t length = length_of(w->product, s);
    const uint32_t most = w->lines->k == 1 ? length : TRANSPOSED_K;
    block b = {.line = line,
               .lines = lines,
               .count = tsr__min_u32(most, length),
               .words = w->lines->words && s.words};

    for (uint32_t at = 0; at < length; at += b.count) {
        b.k = s.k + at;
        b.zeros = s.skip > at ? tsr__min_u32(s.skip - at, b.count) : 0;
        pack_block(w, &b, to + (size_t)at * TSR__LAVAPIPE_PANEL_LINES, length);
    }
}

/* Packs the bands `first` to end − 1; a band has band_lines() lines. Row-major lines are read
 * sequentially, the lines of one panel at a time. */
static void pack_bands(const void *work, uint64_t first, uint64_t end)
{
    const pack *w = work;
    const tsr__lavapipe_product *p = w->product;
    const uint32_t band = band_lines(w->lines);
    const uint32_t lines = w->lines->k == 1 ? TSR__LAVAPIPE_PANEL_LINES : band;
    const uint32_t lines_end = tsr__min_u32((uint32_t)end * band, w->lines->count);

    for (uint32_t line = (uint32_t)first * band; line < lines_end; line += lines)
        for (uint32_t k = 0; k < p->k;) {
            const tsr__lavapipe_stretch s = tsr__lavapipe_stretch_after(p, k);
            const uint32_t length = length_of(p, s);
            pack_stretch(w, line, tsr__min_u32(lines, lines_end - line), s,
                         w->to + (uint64_t)k * w->panel_lines + (uint64_t)line * length);
            k += length;
        }
    w->loops->finish();
}

void tsr__lavapipe_panels_pack(const tsr__lavapipe_product *product,
                               const tsr__lavapipe_lines *lines, float *to)
{
    const pack work = {.product = product,
                       .lines = lines,
                       .panel_lines = tsr__lavapipe_panel_lines(lines->count),
                       .to = to,
                       .loops = choose_loops(product->lanes, to)};

    tsr__host_share(tsr__div_up_u32(lines->count, band_lines(lines)),
                    (uint64_t)lines->count * product->k * sizeof *to, pack_bands, &work);
}
