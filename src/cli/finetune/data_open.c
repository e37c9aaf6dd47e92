/* Reads all files once: checks every line, counts, and keeps where each document is and how long.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/finetune/data_set.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

#define NAMED 10 /* bad lines that are named */

typedef struct reading {
    data_set *set;
    uint64_t named;
} reading;

data_source *data_source_of(data_side *side, uint64_t entry)
{
    int i = 0;
    while (i + 1 < side->source_count && entry >= side->sources[i].first + side->sources[i].count)
        i++;
    return &side->sources[i];
}

/* FNV-1a of a line and the seed. */
static uint64_t hash_of(const data_lines *line, uint64_t seed)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < line->size; i++)
        hash = (hash ^ (unsigned char)line->text[i]) * UINT64_C(0x100000001b3);
    for (int i = 0; i < 8; i++)
        hash = (hash ^ (seed >> (8 * i) & 0xff)) * UINT64_C(0x100000001b3);
    hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd);
    return hash ^ hash >> 33;
}

static void add_entry(data_side *side, data_source *source, uint64_t offset, uint64_t inputs,
                      uint64_t trained)
{
    if (side->count == side->capacity) {
        side->capacity = 2 * side->capacity + 256;
        side->entries = cli_resize(side->entries, side->capacity, sizeof *side->entries);
    }
    side->entries[side->count++] =
        (data_entry){.offset = offset, .inputs = (uint32_t)inputs, .trained = (uint32_t)trained};
    source->count++;
    side->counts.tokens += inputs;
    side->counts.trained += trained;
}

/* Divides a text into pieces that fit the context. The last token of a piece is the first input of
 * the next one. */
static void add_pieces(data_set *set, data_side *side, data_source *source, uint64_t offset,
                       const data_document *document)
{
    const uint64_t context = (uint64_t)set->options.context, inputs = document->count - 1;
    side->counts.divided += inputs > context;
    for (uint64_t first = 0; first < inputs; first += context) {
        const uint64_t count = inputs - first < context ? inputs - first : context;
        add_entry(side, source, offset, count, data_document_trained(document, first, count + 1));
    }
}

/* Adds a document whose length must not exceed the context, or a pair of them. */
static bool add_whole(data_set *set, data_side *side, data_source *source, uint64_t offset,
                      const data_document documents[2], data_problem *problem)
{
    const uint64_t context = (uint64_t)set->options.context;
    uint64_t inputs = 0, trained = 0, lost = 0;
    for (int i = 0; i < (set->options.pairs ? 2 : 1); i++) {
        const uint64_t all = documents[i].count - 1, used = all < context ? all : context;
        const uint64_t own = data_document_trained(&documents[i], 0, used + 1);
        if (all > context && !set->options.cut)
            return data_refuse(problem, DATA_LONG,
                               "%" PRIu64 " tokens are more than the context of %" PRIu64, all,
                               context);
        if (own == 0)
            return data_refuse(problem, DATA_NO_REPLY,
                               "no trained token is among the first %" PRIu64 " of %" PRIu64,
                               context, all);
        lost += all - used;
        inputs = used > inputs ? used : inputs;
        trained += own;
    }
    side->counts.cut += lost > 0;
    side->counts.lost += lost;
    add_entry(side, source, offset, inputs, trained);
    return true;
}

/* Returns whether a document has weights other than 0 and 1. */
static bool is_weighted(const data_document *document)
{
    for (uint64_t i = 0; i < document->count; i++)
        if (document->weights[i] != 0 && document->weights[i] != 1)
            return true;
    return false;
}

static void report(reading *r, const data_lines *line, const data_problem *problem)
{
    r->named++;
    if (r->set->options.quiet || r->named > NAMED)
        return;
    cli_say("data: %s:%" PRIu64 ": %s%s", line->path, line->number, problem->text,
            r->named == NAMED ? " (further lines are only counted)" : "");
}

static void read_document(reading *r, const data_lines *line, bool held_out, const int source[2])
{
    data_set *set = r->set;
    data_document documents[2];
    data_problem problem;
    const uint64_t limit = (uint64_t)(set->options.held_out * 0x1p63) * 2;
    const bool other = !held_out && limit > 0 && hash_of(line, set->options.seed) < limit;
    data_side *side = &set->side[held_out || other ? DATA_HELD_OUT : DATA_TRAIN];
    data_source *of = &side->sources[source[side->held_out]];
    bool good = data_document_read(&set->form, line, documents, &problem);
    side->counts.lines++;
    if (good && documents[0].divisible)
        add_pieces(set, side, of, line->offset, &documents[0]);
    else if (good)
        good = add_whole(set, side, of, line->offset, documents, &problem);
    if (good) {
        side->counts.documents++;
        side->counts.weighted += is_weighted(&documents[0]);
    } else {
        side->counts.bad++;
        side->counts.empty += problem.kind == DATA_EMPTY;
        side->problems[problem.kind]++;
        report(r, line, &problem);
    }
    data_document_free(&documents[0]);
    data_document_free(&documents[1]);
}

static int cannot_read(const char *path)
{
    return errno != 0 ? cli_failed("data: cannot read %s: %s", path, strerror(errno))
                      : cli_failed("data: %s has a line of more than %" PRIu64 " bytes", path,
                                   DATA_MOST_LINE);
}

static data_source *add_source(data_side *side, const char *path, double weight)
{
    data_source *source = &side->sources[side->source_count++];
    *source = (data_source){.path = path, .weight = weight, .first = side->count};
    return source;
}

/* Reads a file. Its documents become a source of each side that may have some. */
static int read_file(reading *r, const char *path, double weight, bool held_out)
{
    data_lines line;
    bool more = true;
    data_side *sides = r->set->side;
    const int source[2] = {sides[0].source_count, sides[1].source_count};
    if (!held_out)
        add_source(&sides[DATA_TRAIN], path, weight);
    if (held_out || r->set->options.held_out > 0)
        add_source(&sides[DATA_HELD_OUT], path, 1);
    if (!data_lines_open(&line, path, r->set->options.context))
        return cannot_read(path);
    int code = CLI_DONE;
    while (code == CLI_DONE) {
        if (!data_lines_next(&line, &more))
            code = cannot_read(path);
        else if (!more)
            break;
        else
            read_document(r, &line, held_out, source);
    }
    data_lines_close(&line);
    return code;
}

static int check_options(const data_options *o)
{
    if (o->context < 1 || o->context > (1 << 24))
        return cli_failed("data: a context of %lld tokens; 1 to %d are possible",
                          (long long)o->context, 1 << 24);
    if (!(o->held_out >= 0 && o->held_out <= 0.5))
        return cli_failed("data: the part %g cannot be held out; 0 to 0.5 can", o->held_out);
    for (int i = 0; o->weights != NULL && i < o->file_count; i++)
        if (!(o->weights[i] >= 0 && o->weights[i] <= 1e6))
            return cli_failed("data: the weight of %s is %g; 0 to 1e6 are possible", o->files[i],
                              o->weights[i]);
    return CLI_DONE;
}

/* Fails if there are bad lines that may not be left out, or nothing is left. */
static int check_counts(const data_set *set, bool wants_held_out)
{
    const data_counts *train = &set->side[DATA_TRAIN].counts,
                      *other = &set->side[DATA_HELD_OUT].counts;
    const uint64_t bad = train->bad + other->bad, lines = train->lines + other->lines;
    if (bad > 0 && !set->options.skip_bad)
        return cli_failed("data: %" PRIu64 " of %" PRIu64 " lines cannot be used; --skip-bad "
                          "leaves them out",
                          bad, lines);
    if (train->documents == 0)
        return cli_failed("data: none of %" PRIu64 " lines can be used", lines);
    if (wants_held_out && other->documents == 0)
        return cli_failed("data: no document of %" PRIu64 " is held out", train->documents);
    return CLI_DONE;
}

static int read_all(reading *r, const data_options *o)
{
    int code = CLI_DONE;
    for (int i = 0; i < o->file_count && code == CLI_DONE; i++)
        code = read_file(r, o->files[i], o->weights != NULL ? o->weights[i] : 1, false);
    if (code == CLI_DONE && o->held_out_file != NULL)
        code = read_file(r, o->held_out_file, 1, true);
    return code;
}

int data_open(const data_options *options, const tsr_tokenizer *tokenizer, tsr_chat_format format,
              data_set **out)
{
    int code = check_options(options);
    if (code != CLI_DONE)
        return code;
    data_set *set = cli_alloc(1, sizeof *set);
    reading r = {.set = set};
    set->options = *options;
    set->options.unpacked = options->unpacked || options->pairs;
    set->form = (data_form){.tokenizer = tokenizer,
                            .format = format,
                            .pairs = options->pairs,
                            .loss_on_all = options->loss_on_all};
    for (int i = 0; i < 2; i++) {
        set->side[i].held_out = i == DATA_HELD_OUT;
        set->side[i].sources = cli_alloc((size_t)options->file_count + 1, sizeof(data_source));
        set->side[i].window.number = UINT64_MAX;
        set->side[i].counted_epoch = -1;
    }
    code = read_all(&r, options);
    if (code == CLI_DONE)
        code = check_counts(set, options->held_out > 0 || options->held_out_file != NULL);
    for (int i = 0; i < 2 && code == CLI_DONE; i++)
        code = data_order_init(set, &set->side[i]);
    if (code != CLI_DONE) {
        data_close(&set);
        return code;
    }
    *out = set;
    return CLI_DONE;
}

void data_close(data_set **set)
{
    if (set == NULL || *set == NULL)
        return;
    for (int i = 0; i < 2; i++) {
        data_side *side = &(*set)->side[i];
        for (int s = 0; s < side->source_count; s++)
            data_lines_close(&side->sources[s].lines);
        free(side->sources);
        free(side->entries);
        data_order_free(side);
    }
    data_document_free(&(*set)->line[0]);
    data_document_free(&(*set)->line[1]);
    free(*set);
    *set = NULL;
}

void data_get_counts(const data_set *set, data_part part, data_counts *out)
{
    *out = set->side[part].counts;
}

int64_t data_usual_context(const tsr_model_config *config)
{
    const int64_t most = 1024;
    return config != NULL && config->context < most ? config->context : most;
}
