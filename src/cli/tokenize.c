/* tessera tokenize: converts text to token ids, and ids to text. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/lib/input.h"
#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/model.h"
#include "cli/lib/options.h"
#include "cli/lib/terminal.h"
#include "tessera/tokenizer.h"

static bool decode, no_bos, parses_special, spells, only_ids;
static const char *source; /* where the text or the ids come from, for errors */

static const cli_option options[] = {
    {"decode", NULL,
     "the other way: TEXT or standard input is ids, as a JSON list, as an object with the member "
     "ids, or "
     "separated by spaces, commas or line breaks",
     .flag = &decode},
    {"no-bos", NULL,
     "add no ids around the text; without this option those are added that the file wants, such as "
     "BOS",
     .flag = &no_bos},
    {"parse-special", NULL,
     "control tokens that are spelled in the text, such as <|eot_id|>, become these tokens; with "
     "--decode, control tokens are spelled instead of left out",
     .flag = &parses_special},
    {"tokens", NULL, "also list how the file spells each token", .flag = &spells},
    {"ids", NULL,
     "print only the ids, on one line, as --decode and the --ids of other commands read them",
     .flag = &only_ids},
    {0},
};

static void help(FILE *out)
{
    cli_wrap(
        out,
        "Prints the token ids of a text as JSON, or the other way. The text is TEXT or, without "
        "this argument, standard input. FILE is a GGUF file, a tokenizer.json, a tokenizer.model "
        "of "
        "SentencePiece, a tok*.bin of llama2.c, or a folder with one of the last three. "
        "The text may be any bytes.\n");
    cli_options_help(out, options);
}

/* Output --------------------------------------------------------------------------------------- */

/* Returns any bytes in base64. The caller must free the text. */
static char *base64(const char *text, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *out = cli_alloc((size + 2) / 3 * 4 + 1, 1), *to = out;
    for (size_t i = 0; i < size; i += 3) {
        unsigned long bits = (unsigned long)(unsigned char)text[i] << 16;
        bits |= i + 1 < size ? (unsigned long)(unsigned char)text[i + 1] << 8 : 0;
        bits |= i + 2 < size ? (unsigned long)(unsigned char)text[i + 2] : 0;
        *to++ = digits[bits >> 18 & 63];
        *to++ = digits[bits >> 12 & 63];
        *to++ = i + 1 < size ? digits[bits >> 6 & 63] : '=';
        *to++ = i + 2 < size ? digits[bits & 63] : '=';
    }
    return out;
}

/* Adds a text that may have any bytes. Adds null if it is not UTF-8. */
static void add_text(json_t *object, const char *name, const char *text, size_t size)
{
    json_t *value = json_stringn(text, size);
    cli_json_add(object, name, value != NULL ? value : json_null());
}

static void add_ids(json_t *document, const int32_t *ids, uint64_t count)
{
    json_t *list = cli_json_add_array(document, "ids");
    for (uint64_t i = 0; i < count; i++)
        cli_json_append(list, json_integer(ids[i]));
}

static void add_spellings(json_t *document, const tsr_tokenizer *tokenizer, const int32_t *ids,
                          uint64_t count)
{
    json_t *list = cli_json_add_array(document, "tokens");
    for (uint64_t i = 0; i < count; i++) {
        tsr_token_info token = TSR_INIT(tsr_token_info);
        json_t *value = tsr_tokenizer_get_token(tokenizer, ids[i], &token) == TSR_OK
                            ? json_stringn(token.text, token.size_bytes)
                            : NULL;
        cli_json_append(list, value != NULL ? value : json_null());
    }
}

static json_t *document_of(const tsr_tokenizer *tokenizer)
{
    json_t *document = cli_json_document("tessera.tokenize", 1);
    tsr_tokenizer_info info = TSR_INIT(tsr_tokenizer_info);
    (void)!tsr_tokenizer_get_info(tokenizer, &info);
    cli_json_text(document, "kind", tsr_tokenizer_kind_name(info.kind));
    cli_json_text(document, "words", info.words);
    return document;
}

/* Encoding and decoding ------------------------------------------------------------------------ */

static void print_line(const int32_t *ids, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        printf("%s%d", i == 0 ? "" : ",", (int)ids[i]);
    putchar('\n');
}

static void print_document(const tsr_tokenizer *tokenizer, const int32_t *ids, uint64_t count)
{
    json_t *document = document_of(tokenizer);
    add_ids(document, ids, count);
    if (spells)
        add_spellings(document, tokenizer, ids, count);
    cli_json_print(document);
}

static int print_ids(const tsr_tokenizer *tokenizer, const char *text, size_t size)
{
    int32_t *ids = NULL;
    uint64_t count = 0;
    const tsr_encode_params params = {.struct_size = sizeof params,
                                      .add = no_bos ? TSR_ENCODE_ADD_NONE : TSR_ENCODE_ADD_DEFAULT,
                                      .control = parses_special ? TSR_ENCODE_CONTROL_TOKEN
                                                                : TSR_ENCODE_CONTROL_TEXT};
    if (tsr_tokenizer_encode(tokenizer, text, size, &params, &ids, &count) != TSR_OK)
        return cli_failed_in("tokenize", tsr_last_error());
    if (only_ids)
        print_line(ids, count);
    else
        print_document(tokenizer, ids, count);
    tsr_tokenizer_free_ids(&ids);
    return CLI_DONE;
}

/* Reads ids that are separated by spaces and commas. */
static int read_list(const char *text, size_t size, int32_t **out, uint64_t *count)
{
    static const char separators[] = " ,\t\r\n";
    int32_t *ids = cli_alloc(size / 2 + 1, sizeof *ids);
    uint64_t read = 0;
    for (const char *at = text + strspn(text, separators); at < text + size;
         at += strspn(at, separators)) {
        size_t length = strcspn(at, separators);
        char *end = NULL;
        errno = 0;
        long value = length > 0 && *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        if (end != at + length || errno != 0 || value > INT32_MAX) {
            free(ids);
            return cli_failed("tokenize: '%.*s' in %s is not an id",
                              (int)(length < 40 ? length : 40), at, source);
        }
        ids[read++] = (int32_t)value;
        at += length;
    }
    *out = ids;
    *count = read;
    return CLI_DONE;
}

static int read_json(const char *text, size_t size, int32_t **out, uint64_t *count)
{
    json_error_t error;
    json_t *document = json_loadb(text, size, 0, &error);
    if (document == NULL)
        return cli_failed("tokenize: %s, line %d: %s", source, error.line, error.text);
    const json_t *list = json_is_object(document) ? json_object_get(document, "ids") : document;
    int code =
        json_is_array(list) ? CLI_DONE : cli_failed("tokenize: %s has no list of ids", source);
    size_t length = json_array_size(list);
    int32_t *ids = cli_alloc(length + 1, sizeof *ids);
    for (size_t i = 0; i < length && code == CLI_DONE; i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id > INT32_MAX)
            code = cli_failed("tokenize: element %zu of the list in %s is not an id", i, source);
        ids[i] = (int32_t)id;
    }
    json_decref(document);
    if (code != CLI_DONE) {
        free(ids);
        return code;
    }
    *out = ids;
    *count = length;
    return CLI_DONE;
}

static int print_text(const tsr_tokenizer *tokenizer, const char *input, size_t input_size)
{
    int32_t *ids = NULL;
    uint64_t count = 0;
    size_t size = 0, start = strspn(input, " \t\r\n");
    bool is_json = input[start] == '[' || input[start] == '{';
    int code = is_json ? read_json(input, input_size, &ids, &count)
                       : read_list(input, input_size, &ids, &count);
    if (code != CLI_DONE)
        return code;
    const tsr_decode_control control =
        parses_special ? TSR_DECODE_CONTROL_SPELL : TSR_DECODE_CONTROL_SKIP;
    char *text = NULL;
    tsr_status status = tsr_tokenizer_decode(tokenizer, ids, count, control, 0, NULL, &size);
    if (status == TSR_OK) {
        text = cli_alloc(size + 1, 1);
        status = tsr_tokenizer_decode(tokenizer, ids, count, control, size, text, &size);
    }
    if (status == TSR_OK) {
        json_t *document = document_of(tokenizer);
        char *encoded = base64(text, size);
        add_text(document, "text", text, size);
        cli_json_text(document, "text_base64", encoded);
        if (spells)
            add_spellings(document, tokenizer, ids, count);
        cli_json_print(document);
        free(encoded);
    }
    free(text);
    free(ids);
    return status == TSR_OK ? CLI_DONE : cli_failed_in("tokenize", tsr_last_error());
}

static int run(int argc, char **argv)
{
    const char *path = NULL;
    tsr_tokenizer *tokenizer = NULL;
    char *input = NULL;
    size_t size = 0;
    int words;
    const char *given[2] = {NULL, NULL};
    int code = cli_options_read("tokenize", options, argc, argv, 2, given, &words);
    if (code != CLI_DONE)
        return code;
    path = given[0];
    if (words == 0 || path[0] == '\0')
        return cli_usage_error("tokenize: missing FILE");
    if (decode && no_bos)
        return cli_usage_error("tokenize: --decode does not take --no-bos");
    if (only_ids && (decode || spells))
        return cli_usage_error("tokenize: --ids does not take %s",
                               decode ? "--decode" : "--tokens");
    if (tsr_tokenizer_open(path, &tokenizer) != TSR_OK)
        return cli_failed_with_file("tokenize", tsr_last_error(), path);
    if (words == 1)
        code = cli_input_read("tokenize", TSR_TOKENIZER_MAX_TEXT, &input, &size);
    const char *text = words == 1 ? input : given[1];
    if (words == 2)
        size = strlen(text);
    source = words == 1 ? "standard input" : "the argument";
    if (code == CLI_DONE)
        code = decode ? print_text(tokenizer, text, size) : print_ids(tokenizer, text, size);
    free(input);
    tsr_tokenizer_close(&tokenizer);
    return code;
}

const cli_command cli_tokenize = {
    .name = "tokenize",
    .usage = "FILE [TEXT] [--decode] [options]",
    .summary = "convert text to a model's token ids, or back",
    .run = run,
    .help = help,
};
