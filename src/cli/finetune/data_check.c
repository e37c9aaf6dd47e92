/* tessera data check: what a training would make of files: tokens and which of them are trained,
 * lengths, duplicates, what would be cut, bad lines. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/finetune/data.h"
#include "cli/finetune/data_document.h"
#include "cli/inference/inference.h"
#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/terminal.h"

enum { MOST_FILES = 1024, BUCKETS = 32, NAMED = 20, BAR = 40 };

static const char *model;
static tsr_chat_format format;
static int64_t context, shown = 3;
static bool pairs, loss_on_all, prints_json;

static const cli_option options[] = {
    {"model", "PATH", "the model, or only its tokenizer: a folder or a file", .text = &model},
    {"context", "N", "tokens of a row (default: what the model was made for, at most 1024)",
     .integer = &context, .low = 1, .high = 1 << 24},
    {"show", "N", "print the first N documents, with the trained tokens in brackets (default: 3)",
     .integer = &shown, .low = 0, .high = 1000000},
    {"pairs", NULL, "the lines are pairs of chosen and rejected texts", .flag = &pairs},
    {"loss-on-all", NULL, "all tokens are trained, not only replies", .flag = &loss_on_all},
    {"format", "NAME", inference_format_help, .read = inference_read_format, .user = &format},
    {"json", NULL, "print JSON", .flag = &prints_json},
    {0},
};

/* Counting ------------------------------------------------------------------------------------- */

typedef struct bad_line {
    const char *path;
    uint64_t number;
    data_problem problem;
} bad_line;

typedef struct report {
    data_form form;
    uint64_t lines, documents, tokens, trained, longer, lost, duplicates;
    uint64_t lengths[BUCKETS]; /* documents of 2^i to 2^(i + 1) − 1 tokens */
    uint64_t problems[DATA_PROBLEM_KINDS];
    bad_line bad[NAMED]; /* the first ones */
    int bad_count;
    uint64_t *hashes; /* [documents] */
    uint64_t capacity;
    json_t *list; /* the documents that are shown; NULL: they are printed */
} report;

static uint64_t hash_of(const data_document documents[2])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int d = 0; d < 2; d++)
        for (uint64_t i = 0; i < documents[d].count; i++)
            hash = (hash ^ (uint32_t)documents[d].ids[i] ^ (uint64_t)d << 40) *
                   UINT64_C(0x100000001b3);
    return hash;
}

static int compare_hashes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Counts documents that are the same as an earlier one. */
static void count_duplicates(report *r)
{
    if (r->documents > 0)
        qsort(r->hashes, (size_t)r->documents, sizeof *r->hashes, compare_hashes);
    for (uint64_t i = 1; i < r->documents; i++)
        r->duplicates += r->hashes[i] == r->hashes[i - 1];
}

static void count_document(report *r, const data_document documents[2])
{
    if (r->documents == r->capacity) {
        r->capacity = 2 * r->capacity + 256;
        r->hashes = cli_resize(r->hashes, (size_t)r->capacity, sizeof *r->hashes);
    }
    r->hashes[r->documents++] = hash_of(documents);
    bool longer = false;
    for (int d = 0; d < (pairs ? 2 : 1); d++) {
        const uint64_t count = documents[d].count;
        int bucket = 0;
        while (bucket < BUCKETS - 1 && count >> (bucket + 1) > 0)
            bucket++;
        r->lengths[bucket]++;
        r->tokens += count;
        r->trained += data_document_trained(&documents[d], 0, count);
        if (count - 1 > (uint64_t)context && !documents[d].divisible) {
            longer = true;
            r->lost += count - 1 - (uint64_t)context;
        }
    }
    r->longer += longer;
}

/* Showing a document --------------------------------------------------------------------------- */

/* Prints text; control characters that could move the cursor become question marks. */
static void print_text(cli_text *text)
{
    for (size_t i = 0; i < text->size; i++)
        if (((unsigned char)text->data[i] < ' ' && text->data[i] != '\n' &&
             text->data[i] != '\t') ||
            text->data[i] == 127)
            text->data[i] = '?';
    if (text->size > 0)
        cli_put(stdout, text->data);
    text->size = 0;
}

/* Prints the tokens of a document. Those that are trained are in brackets, and green in a terminal.
 */
static void print_tokens(const tsr_tokenizer *tokenizer, const data_document *d)
{
    const bool colours = isatty(STDOUT_FILENO);
    tsr_decode_state state = TSR_INIT(tsr_decode_state);
    cli_text text = {0};
    state.control = TSR_DECODE_CONTROL_SPELL;
    bool inside = false;
    for (uint64_t i = 0; i <= d->count; i++) {
        const bool trained = i > 0 && i < d->count && d->weights[i] != 0;
        const char *bytes = NULL;
        size_t size = 0;
        if (trained != inside) {
            print_text(&text);
            cli_put(stdout, trained ? (colours ? "\033[32m[" : "[") : colours ? "]\033[0m" : "]");
        }
        inside = trained;
        if (i < d->count &&
            tsr_tokenizer_decode_next(tokenizer, &state, d->ids[i], &bytes, &size) == TSR_OK)
            cli_text_add(&text, bytes, size);
    }
    print_text(&text);
    cli_put(stdout, "\n");
    cli_text_free(&text);
}

static void list_document(json_t *list, const data_lines *line, const data_document *d,
                          const char *which)
{
    json_t *object = cli_json_append_object(list);
    cli_json_text(object, "file", line->path);
    cli_json_u64(object, "line", line->number);
    if (which[0] != '\0')
        cli_json_text(object, "which", which);
    json_t *ids = cli_json_add_array(object, "ids"),
           *weights = cli_json_add_array(object, "trained");
    for (uint64_t i = 0; i < d->count; i++) {
        cli_json_append(ids, json_integer(d->ids[i]));
        cli_json_append(weights, json_boolean(i > 0 && d->weights[i] != 0));
    }
}

static void show(report *r, const data_lines *line, const data_document documents[2])
{
    static const char *const which[] = {"chosen", "rejected"};
    for (int d = 0; d < (pairs ? 2 : 1); d++) {
        if (r->list != NULL) {
            list_document(r->list, line, &documents[d], pairs ? which[d] : "");
            continue;
        }
        cli_print(stdout, "%s:%" PRIu64 "%s%s: %" PRIu64 " tokens, %" PRIu64 " trained\n",
                  line->path, line->number, pairs ? ", " : "", pairs ? which[d] : "",
                  documents[d].count, data_document_trained(&documents[d], 0, documents[d].count));
        print_tokens(r->form.tokenizer, &documents[d]);
        cli_put(stdout, "\n");
    }
}

/* Files ---------------------------------------------------------------------------------------- */

static void check_line(report *r, const data_lines *line)
{
    data_document documents[2];
    data_problem problem;
    r->lines++;
    if (data_document_read(&r->form, line, documents, &problem)) {
        if (r->documents < (uint64_t)shown)
            show(r, line, documents);
        count_document(r, documents);
    } else {
        r->problems[problem.kind]++;
        if (r->bad_count < NAMED)
            r->bad[r->bad_count++] = (bad_line){line->path, line->number, problem};
    }
    data_document_free(&documents[0]);
    data_document_free(&documents[1]);
}

static int can_open(const char *path)
{
    data_lines line;
    errno = 0;
    if (!data_lines_open(&line, path, context))
        return cli_failed("data check: cannot read %s: %s", path, strerror(errno));
    data_lines_close(&line);
    return CLI_DONE;
}

static int check_file(report *r, const char *path)
{
    data_lines line;
    bool more = true;
    errno = 0;
    if (!data_lines_open(&line, path, context))
        return cli_failed("data check: cannot read %s: %s", path, strerror(errno));
    while (more) {
        if (!data_lines_next(&line, &more)) {
            const int code = cli_failed("data check: cannot read %s: %s", path,
                                        errno != 0 ? strerror(errno) : "a line is too long");
            data_lines_close(&line);
            return code;
        }
        if (more)
            check_line(r, &line);
    }
    data_lines_close(&line);
    return CLI_DONE;
}

/* Rows that an epoch has, and the part of them that is not padding. */
static int pack_rows(const report *r, const char *const *files, int count, int64_t *rows,
                     double *full)
{
    data_set *set = NULL;
    data_counts counts;
    const data_options wanted = {.files = files,
                                 .file_count = count,
                                 .context = context,
                                 .pairs = pairs,
                                 .loss_on_all = loss_on_all,
                                 .skip_bad = true,
                                 .cut = true,
                                 .quiet = true};
    *rows = 0;
    *full = 0;
    if (r->documents == 0)
        return CLI_DONE;
    int code = data_open(&wanted, r->form.tokenizer, format, &set);
    if (code != CLI_DONE)
        return code;
    code = data_rows(set, DATA_TRAIN, 0, rows);
    data_get_counts(set, DATA_TRAIN, &counts);
    if (*rows > 0)
        *full = (double)counts.tokens / ((double)*rows * (double)context);
    data_close(&set);
    return code;
}

/* Output --------------------------------------------------------------------------------------- */

static const char *const kinds[DATA_PROBLEM_KINDS] = {
    [DATA_NO_JSON] = "no JSON",
    [DATA_NO_FORM] = "of no known form or chat format",
    [DATA_EMPTY] = "empty",
    [DATA_NO_REPLY] = "without a trained turn of the assistant",
    [DATA_LONG] = "too long"};
static const char *const kind_names[DATA_PROBLEM_KINDS] = {[DATA_NO_JSON] = "no_json",
                                                           [DATA_NO_FORM] = "no_form",
                                                           [DATA_EMPTY] = "empty",
                                                           [DATA_NO_REPLY] = "no_reply",
                                                           [DATA_LONG] = "too_long"};

static void print_lengths(const report *r)
{
    uint64_t most = 1;
    for (int i = 0; i < BUCKETS; i++)
        most = r->lengths[i] > most ? r->lengths[i] : most;
    cli_put(stdout, "\nlengths, in tokens\n");
    for (int i = 0; i < BUCKETS; i++) {
        char bar[BAR + 1] = "";
        const int length = (int)((double)r->lengths[i] / (double)most * BAR + 0.5);
        memset(bar, '#', (size_t)length);
        if (r->lengths[i] > 0)
            cli_print(stdout, "  %8lld to %-8lld %10" PRIu64 "  %s\n", 1LL << i, (2LL << i) - 1,
                      r->lengths[i], bar);
    }
}

static uint64_t bad_lines(const report *r)
{
    uint64_t bad = 0;
    for (int i = 0; i < DATA_PROBLEM_KINDS; i++)
        bad += r->problems[i];
    return bad;
}

static void print_bad(const report *r)
{
    const uint64_t bad = bad_lines(r);
    if (bad == 0)
        return;
    cli_print(stdout, "\n%" PRIu64 " of %" PRIu64 " lines cannot be used:\n", bad, r->lines);
    for (int i = 0; i < DATA_PROBLEM_KINDS; i++)
        if (r->problems[i] > 0)
            cli_print(stdout, "  %" PRIu64 " %s\n", r->problems[i], kinds[i]);
    for (int i = 0; i < r->bad_count; i++)
        cli_line(stdout, "  %s:%" PRIu64 ": %s", r->bad[i].path, r->bad[i].number,
                 r->bad[i].problem.text);
    if ((uint64_t)r->bad_count < bad)
        cli_print(stdout, "  … and %" PRIu64 " more\n", bad - (uint64_t)r->bad_count);
}

static void print_report(const report *r, int64_t rows, double full)
{
    cli_print(stdout,
              "%" PRIu64 " documents of %" PRIu64 " lines: %" PRIu64 " tokens, of which %" PRIu64
              " are trained\n",
              r->documents, r->lines, r->tokens, r->trained);
    cli_print(stdout, "%" PRIu64 " documents are the same as an earlier one\n", r->duplicates);
    cli_print(stdout,
              "%" PRIu64 " documents are longer than the context of %lld tokens: %" PRIu64
              " tokens would be cut off\n",
              r->longer, (long long)context, r->lost);
    if (rows > 0)
        cli_print(stdout, "an epoch has %lld rows, which are %.1f %% full%s\n", (long long)rows,
                  100 * full, pairs ? ", two for each pair" : "");
    print_lengths(r);
    print_bad(r);
}

static void print_document(const report *r, json_t *document, int64_t rows, double full)
{
    cli_json_u64(document, "context", (uint64_t)context);
    cli_json_u64(document, "lines", r->lines);
    cli_json_u64(document, "documents", r->documents);
    cli_json_u64(document, "tokens", r->tokens);
    cli_json_u64(document, "trained", r->trained);
    cli_json_u64(document, "duplicates", r->duplicates);
    cli_json_u64(document, "longer_than_context", r->longer);
    cli_json_u64(document, "tokens_cut_off", r->lost);
    cli_json_u64(document, "rows", (uint64_t)rows);
    cli_json_real(document, "full", full);
    json_t *lengths = cli_json_add_array(document, "lengths");
    for (int i = 0; i < BUCKETS; i++) {
        if (r->lengths[i] == 0)
            continue;
        json_t *object = cli_json_append_object(lengths);
        cli_json_u64(object, "least", UINT64_C(1) << i);
        cli_json_u64(object, "most", (UINT64_C(2) << i) - 1);
        cli_json_u64(object, "documents", r->lengths[i]);
    }
    json_t *bad = cli_json_add_object(document, "bad");
    cli_json_u64(bad, "lines", bad_lines(r));
    for (int i = 1; i < DATA_PROBLEM_KINDS; i++)
        cli_json_u64(bad, kind_names[i], r->problems[i]);
    json_t *first = cli_json_add_array(bad, "first");
    for (int i = 0; i < r->bad_count; i++) {
        json_t *object = cli_json_append_object(first);
        cli_json_text(object, "file", r->bad[i].path);
        cli_json_u64(object, "line", r->bad[i].number);
        cli_json_text(object, "kind", kind_names[r->bad[i].problem.kind]);
        cli_json_text(object, "reason", r->bad[i].problem.text);
    }
    cli_json_print(document);
}

/* The command ---------------------------------------------------------------------------------- */

static int check_files(report *r, const char *const *files, int count)
{
    int64_t rows;
    double full;
    int code = CLI_DONE;
    json_t *document = NULL;
    if (prints_json) {
        document = cli_json_document("tessera.data.check", 1);
        r->list = cli_json_add_array(document, "shown");
    }
    for (int i = 0; i < count && code == CLI_DONE; i++)
        code = can_open(files[i]); /* before anything is printed */
    for (int i = 0; i < count && code == CLI_DONE; i++)
        code = check_file(r, files[i]);
    if (code == CLI_DONE) {
        count_duplicates(r);
        code = pack_rows(r, files, count, &rows, &full);
    }
    if (code == CLI_DONE && prints_json)
        print_document(r, document, rows, full);
    else if (code == CLI_DONE)
        print_report(r, rows, full);
    else
        json_decref(document);
    return code;
}

/* Opens the tokenizer of the model, whose files are read once, or one that is alone. Sets the
 * context unless it was given. */
static tsr_status open_tokenizer(tsr_tokenizer **out)
{
    tsr_model_file *file = NULL;
    const bool is_model = tsr_model_file_open(model, &file) == TSR_OK;
    if (context == 0)
        context = data_usual_context(is_model ? tsr_model_file_config(file) : NULL);
    const tsr_status status =
        is_model ? tsr_model_file_open_tokenizer(file, out) : tsr_tokenizer_open(model, out);
    tsr_model_file_close(&file);
    return status;
}

static int run_check(int argc, char **argv)
{
    static const char *files[MOST_FILES];
    int count = 0;
    tsr_tokenizer *tokenizer = NULL;
    int code = cli_options_read("data check", options, argc, argv, MOST_FILES, files, &count);
    if (code != CLI_DONE)
        return code;
    if (count == 0)
        return cli_usage_error("data check: missing FILE");
    if (model == NULL)
        return cli_usage_error("data check: missing --model PATH, whose tokenizer is used");
    if (open_tokenizer(&tokenizer) != TSR_OK)
        return cli_failed_in("data check", tsr_last_error());
    report *r = cli_alloc(1, sizeof *r);
    r->form = (data_form){
        .tokenizer = tokenizer, .format = format, .pairs = pairs, .loss_on_all = loss_on_all};
    code = check_files(r, files, count);
    free(r->hashes);
    free(r);
    tsr_tokenizer_close(&tokenizer);
    return code;
}

static void help_check(FILE *out)
{
    cli_wrap(out,
             "Reads files as 'tessera finetune' would: .jsonl files with a JSON object in each "
             "line, and others as plain text. A line has messages (with role and content), "
             "prompt and completion, or text; a pair has chosen and rejected. Prints how many "
             "tokens there are and which of them are trained, the lengths of documents, "
             "duplicates, what would be cut, and the lines that cannot be used.\n");
    inference_list_formats();
    cli_options_help(out, options);
}

static const cli_command check_command = {
    .name = "data check",
    .usage = "FILE... --model PATH [options]",
    .summary = "show what a training would make of files",
    .run = run_check,
    .help = help_check,
};

static const cli_command *const subcommands[] = {&check_command, NULL};

static int run(int argc, char **argv)
{
    if (argc > 1)
        return cli_usage_error("data: unknown command '%s'; it is check", argv[1]);
    return cli_usage_error("data: missing check");
}

static void help(FILE *out)
{
    cli_wrap(out, "Looks at the data of trainings.\n\n");
    fputs("commands:\n", out);
    cli_wrap(out, "  tessera data check  show what a training would make of files\n");
}

const cli_command cli_data = {
    .name = "data",
    .usage = "check FILE... --model PATH [options]",
    .summary = "check the data of a training",
    .run = run,
    .help = help,
    .subcommands = subcommands,
};
