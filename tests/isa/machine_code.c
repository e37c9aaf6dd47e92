#include "isa/program.h"

#include <stdlib.h>
#include <string.h>

static const int widths[ISA_WIDTHS] = {2, 4, 8, 12, 16};

int isa_narrowest(const isa_accesses *accesses)
{
    for (int i = 0; i < ISA_WIDTHS; i++)
        if (accesses->count[i] > 0)
            return widths[i];
    return 0;
}

int isa_widest(const isa_accesses *accesses)
{
    for (int i = ISA_WIDTHS; i-- > 0;)
        if (accesses->count[i] > 0)
            return widths[i];
    return 0;
}

double isa_bytes(const isa_accesses *accesses)
{
    double bytes = 0;

    for (int i = 0; i < ISA_WIDTHS; i++)
        bytes += accesses->count[i] * widths[i];
    return bytes;
}

/* Blocks of instructions --------------------------------------------------------------------- */

bool isa_begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

int isa_width_index(int bytes)
{
    int i = 0;

    while (i < ISA_WIDTHS - 1 && widths[i] < bytes)
        i++;
    return i;
}

bool isa_add_block(isa_program *p, int number)
{
    if (p->block_count == ISA_BLOCKS_MAX)
        return false;
    p->blocks[p->block_count++] =
        (isa_block){.number = number, .first = p->code_count, .target = -1, .falls = true};
    return true;
}

void isa_add(isa_program *p, isa_instruction instruction)
{
    p->code[p->code_count++] = instruction;
    p->blocks[p->block_count - 1].count++;
}

void isa_jump(isa_program *p, int target, bool falls)
{
    isa_block *last = &p->blocks[p->block_count - 1];

    last->target = target;
    last->falls = falls;
}

/* Reads all lines. Each line gives at most two instructions. */
static bool parse(const char *text, const isa_gpu *gpu, isa_program *p)
{
    char line[512];
    size_t lines = 1;

    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    p->code = calloc(2 * lines, sizeof *p->code);
    if (!p->code)
        return false;
    while (*text) {
        size_t length = strcspn(text, "\n"), kept = strcspn(text, gpu ? "\n" : ";\n");
        if (kept >= sizeof line)
            kept = sizeof line - 1;
        memcpy(line, text, kept);
        line[kept] = '\0';
        if (!(gpu ? isa_intel_line(p, line, gpu) : isa_amd_line(p, line)))
            return false;
        text += length + (text[length] == '\n');
    }
    return p->block_count > 0;
}

static int index_of(const isa_program *p, int number)
{
    for (int i = 0; i < p->block_count; i++)
        if (p->blocks[i].number == number)
            return i;
    return -1;
}

static void add_loop(isa_program *p, isa_span loop)
{
    for (int i = 0; i < p->loop_count; i++)
        if (p->loops[i].begin == loop.begin) {
            if (p->loops[i].end < loop.end)
                p->loops[i].end = loop.end;
            return;
        }
    if (p->loop_count < ISA_LOOPS_MAX)
        p->loops[p->loop_count++] = loop;
}

/* Finds the loops: every jump back makes one. If a loop begins inside another one and ends after
 * it, the other one is extended. */
static void find_loops(isa_program *p)
{
    for (int i = 0; i < p->block_count; i++) {
        int to = p->blocks[i].target < 0 ? -1 : index_of(p, p->blocks[i].target);
        if (to >= 0 && to <= i)
            add_loop(p, (isa_span){to, i});
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (int a = 0; a < p->loop_count; a++)
            for (int b = 0; b < p->loop_count; b++)
                if (p->loops[a].begin < p->loops[b].begin && p->loops[b].begin <= p->loops[a].end &&
                    p->loops[b].end > p->loops[a].end) {
                    p->loops[a].end = p->loops[b].end;
                    changed = true;
                }
    }
}

/* Paths through the blocks ------------------------------------------------------------------- */

/* A path, and the sum of what it executes. `order` is the sequence of its instructions, in which
 * those of an inner loop occur once. */
typedef struct path {
    isa_figures sum;
    int *order, count;
    bool reached;
} path;

static void add_instruction(isa_figures *sum, isa_instruction in)
{
    const double times = in.weight;

    /* The clocks that shared memory needs for an access of 64 lanes, by the width of the access. */
    static const double clocks[ISA_WIDTHS] = {2, 2, 4, 6, 8};

    switch (in.kind) {
    case ISA_MATRIX:
        sum->matrix += times;
        sum->fma += in.amount * times;
        break;
    case ISA_PAIRS:
        sum->pairs += in.amount * times;
        sum->fma += 2 * in.amount * times;
        break;
    case ISA_FMA:
        sum->fma += in.amount * times;
        break;
    case ISA_ADDRESS:
        sum->address += times;
        sum->valu += times;
        break;
    case ISA_VALU:
        sum->valu += times;
        break;
    case ISA_SALU:
        sum->salu += times;
        break;
    case ISA_LOAD:
        sum->load.count[in.amount] += times;
        break;
    case ISA_STORE:
        sum->store.count[in.amount] += times;
        break;
    case ISA_LDS_READ:
        sum->lds_read.count[in.amount] += times;
        sum->lds_clocks += clocks[in.amount] * times;
        break;
    case ISA_LDS_WRITE:
        sum->lds_write.count[in.amount] += times;
        sum->lds_clocks += clocks[in.amount] * times;
        break;
    default:
        break;
    }
}

static void add_scaled(isa_figures *sum, const isa_figures *part, double times)
{
    sum->fma += part->fma * times;
    sum->pairs += part->pairs * times;
    sum->matrix += part->matrix * times;
    sum->valu += part->valu * times;
    sum->address += part->address * times;
    sum->salu += part->salu * times;
    sum->lds_clocks += part->lds_clocks * times;
    for (int i = 0; i < ISA_WIDTHS; i++) {
        sum->load.count[i] += part->load.count[i] * times;
        sum->store.count[i] += part->store.count[i] * times;
        sum->lds_read.count[i] += part->lds_read.count[i] * times;
        sum->lds_write.count[i] += part->lds_write.count[i] * times;
    }
}

/* Returns true if `a` rather than `b` is the path to count. */
static bool better(const isa_figures *a, const isa_figures *b)
{
    double loads = isa_bytes(&a->load) - isa_bytes(&b->load);
    double stores = isa_bytes(&a->store) - isa_bytes(&b->store);
    double lds = isa_bytes(&a->lds_read) + isa_bytes(&a->lds_write) - isa_bytes(&b->lds_read) -
                 isa_bytes(&b->lds_write);

    if (a->fma != b->fma)
        return a->fma > b->fma;
    if (loads != 0)
        return loads > 0;
    if (stores != 0)
        return stores > 0;
    if (lds != 0)
        return lds > 0;
    return a->valu + a->salu < b->valu + b->salu;
}

static void append(path *to, const path *from, const int *more, int count)
{
    int *order = malloc(((size_t)from->count + (size_t)count + 1) * sizeof *order);

    if (!order)
        abort();
    if (from->count > 0)
        memcpy(order, from->order, (size_t)from->count * sizeof *order);
    if (count > 0)
        memcpy(order + from->count, more, (size_t)count * sizeof *order);
    free(to->order);
    to->order = order;
    to->count = from->count + count;
}

static path best_path(const isa_program *p, isa_span range, bool cycle, double fma_per_step);

/* Makes `candidate` the path to a block if it is better than the present path. Takes ownership of
 * candidate.order. */
static void offer(path *to, path candidate)
{
    if (to->reached && !better(&candidate.sum, &to->sum)) {
        free(candidate.order);
        return;
    }
    free(to->order);
    *to = candidate;
    to->reached = true;
}

static path extended(const path *from, const path *node, double times)
{
    path out = {.sum = from->sum};

    add_scaled(&out.sum, &node->sum, times);
    append(&out, from, node->order, node->count);
    return out;
}

/* Returns the instructions of one block as a path. */
static path block_path(const isa_program *p, int index)
{
    const isa_block *b = &p->blocks[index];
    path out = {.order = malloc(((size_t)b->count + 1) * sizeof *out.order), .count = b->count};

    if (!out.order)
        abort();
    for (int i = 0; i < b->count; i++) {
        out.order[i] = b->first + i;
        add_instruction(&out.sum, p->code[b->first + i]);
    }
    return out;
}

/* Finds the largest loop inside `range` that begins at `index` and is not `range` itself. Returns
 * false if there is none. */
static bool loop_at(const isa_program *p, isa_span range, int index, isa_span *out)
{
    for (int i = 0; i < p->loop_count; i++)
        if (p->loops[i].begin == index && p->loops[i].end <= range.end &&
            (p->loops[i].begin != range.begin || p->loops[i].end != range.end)) {
            *out = p->loops[i];
            return true;
        }
    return false;
}

/* Some compilers jump to a loop's condition, which stands at its end. Returns the beginning of the
 * largest loop inside `range` that begins after block `from` and contains block `to`; `to` if there
 * is none. */
static int entry_of(const isa_program *p, isa_span range, int from, int to)
{
    int entry = to;

    for (int i = 0; i < p->loop_count; i++) {
        isa_span loop = p->loops[i];
        if (loop.begin > from && loop.begin < entry && loop.end >= to && loop.end <= range.end)
            entry = loop.begin;
    }
    return entry;
}

/* Returns the most expensive path from the beginning of `range` to its end. If `cycle` is set, the
 * end is a jump back to the beginning; otherwise it is the end of the program or the last block. On
 * the path, an inner loop is repeated until it has made fma_per_step multiply-adds, at least once.
 */
static path best_path(const isa_program *p, isa_span range, bool cycle, double fma_per_step)
{
    int count = range.end - range.begin + 2; /* the last entry stands for the end of the path */
    path *to = calloc((size_t)count, sizeof *to);
    path out = {0};

    if (!to)
        abort();
    to[0].reached = true;
    for (int i = range.begin; i <= range.end; i++) {
        path *from = &to[i - range.begin];
        isa_span inner = {i, i};
        bool loop = loop_at(p, range, i, &inner);
        if (!from->reached)
            continue;
        path node = loop ? best_path(p, inner, true, 0) : block_path(p, i);
        double times = loop && node.sum.fma > 0 && fma_per_step > node.sum.fma
                           ? fma_per_step / node.sum.fma
                           : 1;
        for (int b = inner.begin; b <= inner.end; b++) {
            int next[2] = {p->blocks[b].falls ? b + 1 : -1,
                           p->blocks[b].target < 0 ? -1 : index_of(p, p->blocks[b].target)};
            bool ends = !p->blocks[b].falls && p->blocks[b].target < 0;
            for (int n = 0; n < 2; n++) {
                bool back = next[n] == range.begin && cycle;
                if (back || (!cycle && next[n] > range.end))
                    offer(&to[count - 1], extended(from, &node, times));
                else if (next[n] > inner.end && next[n] <= range.end)
                    offer(&to[entry_of(p, range, inner.end, next[n]) - range.begin],
                          extended(from, &node, times));
            }
            if (ends && !cycle)
                offer(&to[count - 1], extended(from, &node, times));
        }
        free(node.order);
    }
    out = to[count - 1];
    for (int i = 0; i < count - 1; i++)
        free(to[i].order);
    free(to);
    return out;
}

/* Figures ------------------------------------------------------------------------------------ */

/* Computes waits and the bytes of loads in flight from the sequence of a path. */
static void read_sequence(const isa_program *p, const path *way, isa_figures *out)
{
    double flight = 0;
    bool loaded = false, multiplied = false;

    for (int i = 0; i < way->count; i++) {
        isa_instruction in = p->code[way->order[i]];
        if (in.kind == ISA_LOAD) {
            loaded = true;
            flight += widths[in.amount];
            if (flight > out->flight)
                out->flight = flight;
        } else if (in.kind == ISA_WAIT) {
            flight = 0;
            out->waits += loaded && !multiplied;
        } else if ((in.kind == ISA_FMA || in.kind == ISA_PAIRS || in.kind == ISA_MATRIX) &&
                   loaded) {
            multiplied = true;
        }
    }
    if (!multiplied)
        out->waits = 0;
}

static bool is_outermost(const isa_program *p, isa_span loop)
{
    for (int i = 0; i < p->loop_count; i++)
        if (p->loops[i].begin <= loop.begin && p->loops[i].end >= loop.end &&
            (p->loops[i].begin != loop.begin || p->loops[i].end != loop.end))
            return false;
    return true;
}

static double weight_of(const isa_figures *sum)
{
    return sum->fma + isa_bytes(&sum->load);
}

/* Finds the main loop (see machine_code.h) and its path. Returns false if there is no loop with
 * loads or multiply-adds. */
static bool find_main(const isa_program *p, double fma_per_step, isa_span *main_loop, path *out)
{
    bool found = false;

    for (int i = 0; i < p->loop_count; i++) {
        if (!is_outermost(p, p->loops[i]))
            continue;
        path way = best_path(p, p->loops[i], true, 0);
        if (weight_of(&way.sum) > 0 && (!found || weight_of(&way.sum) > weight_of(&out->sum))) {
            if (found)
                free(out->order);
            *out = way;
            *main_loop = p->loops[i];
            found = true;
        } else {
            free(way.order);
        }
    }
    if (found) {
        free(out->order);
        *out = best_path(p, *main_loop, true, fma_per_step);
    }
    return found;
}

/* Counts stores and vector instructions after the main loop. */
static void read_result(const isa_program *p, int begin, isa_figures *out)
{
    isa_span rest = {begin, p->block_count - 1};

    if (rest.begin > rest.end)
        return;
    path way = best_path(p, rest, false, 0);
    double elements = 0;
    for (int i = 0; i < ISA_WIDTHS; i++)
        elements += way.sum.store.count[i] * (widths[i] < 4 ? 1 : widths[i] / 4.0);
    out->result = way.sum.store;
    out->result_valu = elements > 0 ? (way.sum.valu + way.sum.fma) / elements : 0;
    free(way.order);
}

bool isa_read(const char *text, const isa_gpu *gpu, double fma_per_step, isa_figures *out)
{
    isa_program *p = calloc(1, sizeof *p);
    path way = {0};
    isa_span main_loop = {0, 0};

    if (!p)
        return false;
    memset(out, 0, sizeof *out);
    bool readable = parse(text, gpu, p);
    if (readable) {
        find_loops(p);
        bool loop = find_main(p, fma_per_step, &main_loop, &way);
        if (!loop)
            way = best_path(p, (isa_span){0, p->block_count - 1}, false, 0);
        *out = way.sum;
        out->loop = loop;
        read_sequence(p, &way, out);
        if (loop)
            read_result(p, main_loop.end + 1, out);
        free(way.order);
    }
    free(p->code);
    free(p);
    return readable;
}
