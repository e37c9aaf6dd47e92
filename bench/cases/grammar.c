/* tessera bench grammar: compiling grammars, and finding which tokens may follow. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/bench.h"
#include "bench/harness/child.h"
#include "cli/lib/memory.h"

#define TOKENS 128000
#define WORDS ((TOKENS + 31) / 32)
#define MOST_TEXT 2048
#define LONGEST 16 /* bytes of a token */

/* Schemas as programs write them, and texts that follow them. */
static const struct {
    const char *name, *schema, *text;
} cases[] = {
    {"any object", "{\"type\": \"object\"}",
     "{\"name\": \"Ada\", \"born\": 1815, \"tags\": [\"maths\", \"engines\"], \"alive\": false, "
     "\"notes\": {\"first\": \"She wrote the first program.\", \"more\": [1, 2.5, null]}}"},
    {"call of a tool",
     "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"unit\": "
     "{\"enum\": "
     "[\"celsius\", \"fahrenheit\"]}, \"days\": {\"type\": \"integer\", \"minimum\": 1, "
     "\"maximum\": "
     "14}}, \"required\": [\"city\", \"unit\", \"days\"], \"additionalProperties\": false}",
     "{\"city\": \"San Francisco\", \"unit\": \"celsius\", \"days\": 10}"},
    {"strings with limits",
     "{\"type\": \"object\", \"properties\": {\"title\": {\"type\": \"string\", \"maxLength\": "
     "64}, "
     "\"summary\": {\"type\": \"string\", \"maxLength\": 2000}, \"words\": {\"type\": \"array\", "
     "\"items\": {\"type\": \"string\", \"maxLength\": 24}, \"maxItems\": 10}}, \"required\": "
     "[\"title\", \"summary\", \"words\"]}",
     "{\"title\": \"Of grammars\", \"summary\": \"A grammar restricts which tokens may follow, so "
     "that a generated text has a given form; masks are found with a pushdown automaton over "
     "bytes, and kept.\", \"words\": [\"grammar\", \"automaton\", \"mask\", \"token\"]}"},
    {"patterns and formats",
     "{\"type\": \"object\", \"properties\": {\"sku\": {\"type\": \"string\", \"pattern\": "
     "\"^[A-Z]{3}-[0-9]{4,8}$\"}, \"date\": {\"type\": \"string\", \"format\": \"date\"}, \"url\": "
     "{\"type\": \"string\", \"pattern\": \"^https?://[a-z0-9.-]+(/[a-zA-Z0-9_./-]*)?$\"}}, "
     "\"required\": [\"sku\", \"date\", \"url\"]}",
     "{\"sku\": \"ABC-123456\", \"date\": \"2026-11-30\", \"url\": "
     "\"https://docs.example.org/guide/start.html\"}"},
    {"recursive",
     "{\"$defs\": {\"node\": {\"type\": \"object\", \"properties\": {\"value\": {\"type\": "
     "\"string\"}, \"children\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/node\"}}}, "
     "\"required\": [\"value\"]}}, \"$ref\": \"#/$defs/node\"}",
     "{\"value\": \"root\", \"children\": [{\"value\": \"a\", \"children\": [{\"value\": \"b\", "
     "\"children\": []}]}, {\"value\": \"c\"}]}"},
};
#define CASES (sizeof cases / sizeof *cases)

/* Vocabulary ----------------------------------------------------------------------------------- */

static bool put_token(FILE *file, const char *bytes, size_t size)
{
    const float score = 0;
    const int32_t length = (int32_t)size;
    return fwrite(&score, sizeof score, 1, file) == 1 &&
           fwrite(&length, sizeof length, 1, file) == 1 && fwrite(bytes, size, 1, file) == 1;
}

/* Writes word `number` of all words of `syllables` syllables; those of a length do not repeat. */
static size_t make_word(char *word, uint32_t number, int syllables)
{
    static const char consonants[] = "bcdfghjklmnprstv", vowels[] = "aeiou";
    size_t size = 0;
    for (int i = 0; i < syllables; i++, number /= 80) {
        word[size++] = consonants[number % 80 / 5];
        word[size++] = vowels[number % 5];
    }
    return size;
}

/* Writes the tokens after the first three: all bytes, digits, JSON's punctuation, and words with
 * and without a space before them, as vocabularies of models have them. */
static bool put_tokens(FILE *file)
{
    static const char marks[] = "{}[]\",: \\.-/";
    char text[32];
    int count = 3;
    bool good = true;
    for (int i = 0; i < 256 && good; i++, count++) {
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        good = put_token(file, text, 6);
    }
    for (char c = ' '; c <= '~' && good; c++, count++)
        good = put_token(file, &c, 1);
    for (int i = 10; i < 1000 && good; i++, count++) {
        snprintf(text, sizeof text, "%d", i);
        good = put_token(file, text, strlen(text));
    }
    for (size_t i = 0; i < sizeof marks - 1; i++)
        for (size_t k = 0; k < sizeof marks - 1 && good; k++, count++)
            good = put_token(file, (const char[]){marks[i], marks[k]}, 2);
    for (int syllables = 1; good && count < TOKENS; syllables++) {
        const uint32_t all = syllables == 1 ? 80 : syllables == 2 ? 6400 : 60000;
        for (uint32_t i = 0; i < 2 * all && good && count < TOKENS; i++, count++) {
            text[0] = ' ';
            const size_t size = make_word(text + 1, i / 2 * (syllables > 2 ? 7 : 1), syllables);
            good = put_token(file, text + i % 2, size + 1 - i % 2);
        }
    }
    return good;
}

static bool make_tokenizer(bench_context *context, tsr_tokenizer **out)
{
    char folder[BENCH_FOLDER_SIZE], path[BENCH_FOLDER_SIZE + 32];
    const int32_t longest = LONGEST;
    if (!bench_folder_create(folder))
        return bench_fail(context, "bench grammar: no temporary folder in %.200s: %s",
                          bench_folder_parent(), strerror(errno));
    snprintf(path, sizeof path, "%s/tokenizer.bin", folder);
    FILE *file = fopen(path, "wb");
    bool good = file != NULL && fwrite(&longest, sizeof longest, 1, file) == 1 &&
                put_token(file, "<unk>", 5) && put_token(file, "\n<s>\n", 5) &&
                put_token(file, "\n</s>\n", 6) && put_tokens(file);
    if (file != NULL)
        good = fclose(file) == 0 && good;
    if (!good)
        bench_fail(context, "bench grammar: cannot write %s", path);
    const tsr_status status = good ? tsr_tokenizer_open(path, out) : TSR_OK;
    bench_folder_remove(folder);
    if (status != TSR_OK)
        return bench_fail(context, "bench grammar: %s", tsr_last_error());
    return good;
}

/* Texts ---------------------------------------------------------------------------------------- */

typedef struct follower {
    tsr_tokenizer *tokenizer;
    const char *schema;
    tsr_grammar *grammar;
    int32_t ids[MOST_TEXT];
    int count;
    int allowed;    /* of the tokens of the last text */
    bool complete;  /* it could end */
    uint32_t *mask; /* [WORDS] */
    bool compiles;  /* each run compiles the grammar before it follows the text */
} follower;

/* Divides a text into its longest tokens. */
static void divide(follower *f, const char *text)
{
    f->count = 0;
    for (size_t at = 0, size = strlen(text); at < size && f->count < MOST_TEXT;) {
        size_t length = size - at < LONGEST ? size - at : LONGEST;
        int32_t id = -1;
        for (; length > 0; length--) {
            char spelling[3 * LONGEST + 1];
            size_t used = 0;
            for (size_t i = 0; i < length; i++) {
                const bool space = text[at + i] == ' '; /* spelled as U+2581 */
                memcpy(spelling + used, space ? "\xe2\x96\x81" : text + at + i, space ? 3 : 1);
                used += space ? 3 : 1;
            }
            id = tsr_tokenizer_find(f->tokenizer, spelling, used);
            if (id >= 0)
                break;
        }
        if (id < 0)
            return;
        f->ids[f->count++] = id;
        at += length;
    }
}

static tsr_status follow(tsr_stream *stream, void *user)
{
    (void)stream;
    follower *f = user;
    tsr_grammar_state *state = NULL;
    tsr_status status = TSR_OK;
    f->allowed = 0;
    if (f->compiles)
        tsr_grammar_destroy(&f->grammar);
    if (f->grammar == NULL)
        status = tsr_grammar_create(tsr_grammar_params(.tokenizer = f->tokenizer, .text = f->schema,
                                                       .size_bytes = strlen(f->schema),
                                                       .kind = TSR_GRAMMAR_JSON_SCHEMA),
                                    &f->grammar);
    if (status == TSR_OK)
        status = tsr_grammar_state_create(f->grammar, NULL, &state);
    for (int i = 0; i < f->count && status == TSR_OK; i++) {
        status = tsr_grammar_state_mask(state, WORDS, f->mask);
        if (status == TSR_OK && f->mask[f->ids[i] / 32] >> (f->ids[i] % 32) & 1) {
            f->allowed++;
            status = tsr_grammar_state_add(state, f->ids[i]);
        }
    }
    f->complete = tsr_grammar_state_end(state) != TSR_GRAMMAR_INCOMPLETE;
    tsr_grammar_state_destroy(&state);
    return status;
}

static bool measure_case(bench_context *context, follower *f, size_t number, bool first)
{
    f->schema = cases[number].schema;
    f->compiles = first;
    divide(f, cases[number].text);
    bench_row *row = bench_add(context, "grammar", BENCH_TIME, (double)f->count);
    bench_text(row, "schema", "%s", cases[number].name);
    bench_text(row, "text", "%s", first ? "first, with compiling" : "later");
    bench_integer(row, "tokens", f->count);
    BENCH_TRY(context, follow(NULL, f));
    bench_check_begin(&row->check, "masks allow each token of a text of this form, which is then "
                                   "complete");
    bench_check_value(&row->check, 0, 0, f->allowed, f->count, 0);
    bench_check_value(&row->check, 0, 1, f->complete, 1, 0);
    return bench_verified(context, row) &&
           bench_measure(context, row, &(bench_task){.run = follow, .user = f, .host_only = true});
}

static bool run_grammar(bench_context *context)
{
    follower f = {0};
    bool done = make_tokenizer(context, &f.tokenizer);
    f.mask = cli_alloc(WORDS, sizeof *f.mask);
    for (size_t i = 0; i < CASES && done; i++)
        for (int later = 0; later < 2 && done; later++) {
            done = measure_case(context, &f, i, later == 0);
            if (later == 1)
                tsr_grammar_destroy(&f.grammar);
        }
    tsr_grammar_destroy(&f.grammar);
    tsr_tokenizer_close(&f.tokenizer);
    free(f.mask);
    return done;
}

const bench bench_grammar = {
    .name = "grammar",
    .summary = "which tokens may follow, by a JSON schema",
    .help = "Follows texts by their schemas: before each token, finds the mask of the tokens that "
            "may follow, of a vocabulary of 128000 (digits, punctuation and made words), and then "
            "reads the token. The first text includes the compilation of the grammar and the masks "
            "that are kept; later ones use them. Verified: each token is allowed, and the text is "
            "complete.\n",
    .host_only = true,
    .run = run_grammar,
};
