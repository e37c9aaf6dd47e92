/* The order of documents in an epoch, and how they are packed into rows.
 *
 * An epoch has `items` documents: of each file as many as its weight says. A permutation of the
 * library (tsr_feistel), made from seed and epoch, gives their order, so that any place of it is
 * known without those before. Windows of WINDOW documents in this order are packed by themselves:
 * the longest documents first, each into the first row that has room for it. The rows of a window
 * are then put into random order, because the first ones have the longest documents. So rows depend
 * on the files, the options and the seed only, and a row is found by packing its window. */
#include <stdlib.h>
#include <string.h>

#include "cli/finetune/data_set.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

enum {
    WINDOW = 4096,
    /* the passes of tsr_feistel: the order of all items; the order of rows, from PASS_ROWS on for
     * each window; the order of each file's documents, from PASS_FILE on for each time an epoch has
     * all of them */
    PASS_ITEMS = 0,
};
#define PASS_FILE (UINT64_C(1) << 32)
#define PASS_ROWS (UINT64_C(1) << 48)

/* Order ---------------------------------------------------------------------------------------- */

int data_order_init(data_set *set, data_side *side)
{
    side->items = 0;
    for (int i = 0; i < side->source_count; i++) {
        data_source *s = &side->sources[i];
        s->per_epoch = (uint64_t)(s->weight * (double)s->count + 0.5);
        side->items += s->per_epoch;
    }
    side->windows = (side->items + WINDOW - 1) / WINDOW;
    side->rows_before = cli_alloc((size_t)side->windows + 1, sizeof *side->rows_before);
    if (!side->held_out && side->items == 0)
        return cli_failed("data: the weights of the files leave no document to an epoch");
    (void)set;
    return CLI_DONE;
}

void data_order_free(data_side *side)
{
    free(side->rows_before);
    free(side->epoch_first);
    free(side->window.first);
    free(side->window.entries);
}

static int64_t element(uint64_t n, uint64_t seed, int64_t epoch, uint64_t pass, uint64_t place)
{
    tsr_feistel order;
    int64_t out = 0;
    if (tsr_feistel_init(n, seed, (uint64_t)epoch, pass, &order) == TSR_OK)
        tsr_feistel_fill(&order, place, 1, 1, &out);
    return out;
}

/* Returns the entry at a place of an epoch. */
static uint64_t entry_at(const data_set *set, const data_side *side, const tsr_feistel *order,
                         int64_t epoch, uint64_t place)
{
    const bool shuffles = !side->held_out && !set->options.unshuffled;
    int64_t item = (int64_t)place;
    if (shuffles)
        tsr_feistel_fill(order, place, 1, 1, &item);
    uint64_t number = (uint64_t)item;
    int i = 0;
    while (number >= side->sources[i].per_epoch)
        number -= side->sources[i++].per_epoch;
    const data_source *s = &side->sources[i];
    const uint64_t time = number / s->count, within = number % s->count;
    if (s->per_epoch % s->count == 0) /* an epoch has all of them */
        return s->first + within;
    if (!shuffles)
        return s->first + (within + (uint64_t)epoch * s->per_epoch) % s->count;
    return s->first +
           (uint64_t)element(s->count, set->options.seed, epoch, PASS_FILE + time, within);
}

/* Packing -------------------------------------------------------------------------------------- */

/* The room of rows, as a tree of maxima: leaf i is room[size + i]. */
typedef struct rooms {
    uint32_t *room;
    uint64_t size;
} rooms;

static void set_room(rooms *r, uint64_t row, uint32_t room)
{
    uint64_t at = r->size + row;
    r->room[at] = room;
    for (at /= 2; at > 0; at /= 2)
        r->room[at] = r->room[2 * at] > r->room[2 * at + 1] ? r->room[2 * at] : r->room[2 * at + 1];
}

/* Returns the first row with room for `inputs` tokens. There always is one: an empty row. */
static uint64_t first_with(const rooms *r, uint32_t inputs)
{
    uint64_t at = 1;
    while (at < r->size)
        at = 2 * at + (r->room[2 * at] < inputs);
    return at - r->size;
}

typedef struct packed {
    uint64_t entry, row, place; /* place: in the window */
    uint32_t inputs;
} packed;

/* Long documents first; those of the same length in the order of the window. */
static int longer_first(const void *a, const void *b)
{
    const packed *x = a, *y = b;
    if (x->inputs != y->inputs)
        return x->inputs < y->inputs ? 1 : -1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static int by_row(const void *a, const void *b)
{
    const packed *x = a, *y = b;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Gives each document a row. Returns the number of rows. */
static uint64_t give_rows(const data_set *set, packed *documents, uint64_t count)
{
    rooms r = {.size = 1};
    uint64_t rows = 0;
    while (r.size < count)
        r.size *= 2;
    r.room = cli_alloc(2 * (size_t)r.size, sizeof *r.room);
    for (uint64_t i = 1; i < 2 * r.size; i++)
        r.room[i] = (uint32_t)set->options.context;
    qsort(documents, (size_t)count, sizeof *documents, longer_first);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t row = first_with(&r, documents[i].inputs);
        set_room(&r, row, r.room[r.size + row] - documents[i].inputs);
        documents[i].row = row;
        rows = row + 1 > rows ? row + 1 : rows;
    }
    free(r.room);
    return rows;
}

/* Packs the documents of a window. Returns them in the order of rows; free() them. */
static packed *pack(const data_set *set, const data_side *side, int64_t epoch, uint64_t window,
                    uint64_t *count, uint64_t *rows)
{
    const uint64_t first = window * WINDOW, left = side->items - first,
                   number = left < WINDOW ? left : WINDOW;
    tsr_feistel order = {0};
    packed *documents = cli_alloc((size_t)number, sizeof *documents);
    (void)!tsr_feistel_init(side->items, set->options.seed, (uint64_t)epoch, PASS_ITEMS, &order);
    for (uint64_t i = 0; i < number; i++) {
        const uint64_t entry = entry_at(set, side, &order, epoch, first + i);
        documents[i] =
            (packed){.entry = entry, .row = i, .place = i, .inputs = side->entries[entry].inputs};
    }
    *count = *rows = number;
    if (set->options.unpacked)
        return documents;
    *rows = give_rows(set, documents, number);
    for (uint64_t i = 0; i < number && !side->held_out && !set->options.unshuffled; i++)
        documents[i].row = (uint64_t)element(*rows, set->options.seed, epoch, PASS_ROWS + window,
                                             documents[i].row);
    qsort(documents, (size_t)number, sizeof *documents, by_row);
    return documents;
}

static void need_window(const data_set *set, data_side *side, int64_t epoch, uint64_t number)
{
    data_window *w = &side->window;
    uint64_t count;
    if (w->number == number && w->epoch == epoch)
        return;
    packed *documents = pack(set, side, epoch, number, &count, &w->rows);
    w->first = cli_resize(w->first, (size_t)w->rows + 1, sizeof *w->first);
    w->entries = cli_resize(w->entries, (size_t)count, sizeof *w->entries);
    for (uint64_t i = 0, row = 0; i < count; i++) {
        for (; row <= documents[i].row; row++)
            w->first[row] = i;
        w->entries[i] = documents[i].entry;
    }
    w->first[w->rows] = count;
    w->epoch = epoch;
    w->number = number;
    free(documents);
}

/* Rows ----------------------------------------------------------------------------------------- */

/* Counts the rows of an epoch before each window. */
static void count_rows(const data_set *set, data_side *side, int64_t epoch)
{
    if (side->counted_epoch == epoch)
        return;
    for (uint64_t w = 0; w < side->windows; w++) {
        uint64_t count, rows;
        free(pack(set, side, epoch, w, &count, &rows));
        side->rows_before[w + 1] = side->rows_before[w] + rows;
    }
    side->counted_epoch = epoch;
}

static int64_t rows_of(const data_set *set, data_side *side, int64_t epoch)
{
    if (set->options.unpacked)
        return (int64_t)side->items;
    count_rows(set, side, epoch);
    return (int64_t)side->rows_before[side->windows];
}

int data_rows(data_set *set, data_part part, int64_t epoch, int64_t *out)
{
    data_side *side = &set->side[part];
    const int64_t each = set->options.pairs ? 2 : 1;
    *out = side->items == 0 ? 0 : each * rows_of(set, side, side->held_out ? 0 : epoch);
    return CLI_DONE;
}

/* Returns the epoch of a row, and sets *within to its number in the epoch. */
static int64_t epoch_of(data_set *set, data_side *side, int64_t row, int64_t *within)
{
    if (set->options.unpacked) {
        *within = row % (int64_t)side->items;
        return row / (int64_t)side->items;
    }
    for (int64_t epoch = 0;; epoch++) {
        if (epoch >= side->epochs) {
            if (side->epochs + 2 > side->epoch_capacity) {
                side->epoch_capacity = 2 * side->epoch_capacity + 16;
                side->epoch_first = cli_resize(side->epoch_first, (size_t)side->epoch_capacity,
                                               sizeof *side->epoch_first);
                side->epoch_first[0] = 0;
            }
            side->epoch_first[epoch + 1] = side->epoch_first[epoch] + rows_of(set, side, epoch);
            side->epochs = epoch + 1;
        }
        if (row < side->epoch_first[epoch + 1]) {
            *within = row - side->epoch_first[epoch];
            return epoch;
        }
    }
}

int data_row_find(data_set *set, data_side *side, int64_t row, const uint64_t **entries,
                  uint64_t *count, int64_t *epoch)
{
    int64_t within = row;
    *count = 0;
    *epoch = 0;
    if (side->items == 0 || (side->held_out && row >= rows_of(set, side, 0)))
        return side->held_out ? CLI_DONE : cli_failed("data: there are no documents");
    if (!side->held_out)
        *epoch = epoch_of(set, side, row, &within);
    uint64_t window = (uint64_t)within / WINDOW;
    if (!set->options.unpacked) {
        count_rows(set, side, *epoch);
        uint64_t low = 0, end = side->windows; /* the window is in low … end − 1 */
        while (end - low > 1) {
            const uint64_t middle = (low + end) / 2;
            if (side->rows_before[middle] <= (uint64_t)within)
                low = middle;
            else
                end = middle;
        }
        window = low;
        within -= (int64_t)side->rows_before[window];
    } else {
        within -= (int64_t)(window * WINDOW);
    }
    need_window(set, side, *epoch, window);
    *entries = side->window.entries + side->window.first[within];
    *count = side->window.first[within + 1] - side->window.first[within];
    return CLI_DONE;
}
