#include "text.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/common.h"

#define PATH_SIZE 4096
#define FILE_MAX ((size_t)1 << 30) /* bytes */
#define UNICODE_MAX 0x10FFFF

typedef struct failure {
    char *text;
    size_t size;
} failure;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static bool
fail(const failure *into, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(into->text, into->size, format, arguments);
    va_end(arguments);
    return false;
}

/* Decodes the character at the start of bytes[size] to *character. Returns its length, or 0 for
 * anything that is not valid UTF-8 (RFC 3629: no surrogates, no overlong forms). */
static size_t decode(const char *bytes, size_t size, uint32_t *character)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)bytes[0];
    size_t length = first < 0x80 ? 1 : first < 0xC0 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (length == 0 || length > size || first > 0xF4)
        return 0;
    uint32_t value = length == 1 ? first : first & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        unsigned char next = (unsigned char)bytes[i];
        if ((next & 0xC0) != 0x80)
            return 0;
        value = value << 6 | (next & 0x3F);
    }
    if (value < least[length] || value > UNICODE_MAX || (value >= 0xD800 && value <= 0xDFFF))
        return 0;
    *character = value;
    return length;
}

/* Decodes bytes[size] to out[size]. Returns the number of characters, or −1 for invalid UTF-8. */
static int64_t decode_all(const char *name, const char *bytes, size_t size, uint32_t *out,
                          const failure *error)
{
    int64_t count = 0;
    for (size_t at = 0; at < size;) {
        size_t length = decode(bytes + at, size - at, &out[count]);
        if (length == 0) {
            fail(error, "%s: byte %zu, 0x%02x, is not UTF-8", name, at, (unsigned char)bytes[at]);
            return -1;
        }
        at += length;
        count++;
    }
    return count;
}

/* Returns the token of a character, or −1. */
static int32_t find(const gpt_text *text, uint32_t character)
{
    int low = 0, high = text->vocabulary;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (text->characters[middle] < character)
            low = middle + 1;
        else
            high = middle;
    }
    return low < text->vocabulary && text->characters[low] == character ? low : -1;
}

/* Collects the distinct characters of characters[count] in ascending order. */
static bool collect_vocabulary(gpt_text *text, const uint32_t *characters, int64_t count)
{
    uint8_t *seen = calloc(UNICODE_MAX / 8 + 1, 1);
    if (!seen)
        return false;
    for (int64_t i = 0; i < count; i++) {
        uint8_t bit = (uint8_t)(1u << characters[i] % 8);
        text->vocabulary += !(seen[characters[i] / 8] & bit);
        seen[characters[i] / 8] |= bit;
    }
    text->characters = malloc((size_t)text->vocabulary * sizeof *text->characters);
    int filled = 0;
    for (uint32_t c = 0; text->characters && c <= UNICODE_MAX; c++)
        if (seen[c / 8] >> c % 8 & 1)
            text->characters[filled++] = c;
    free(seen);
    return text->characters != NULL;
}

/* Checks the number of tokens, and divides them into the part to train on and the held-out part. */
static bool divide(const char *path, int block, gpt_text *text, const failure *error)
{
    text->train = text->count - (text->count + 9) / 10;
    /* A window needs one more token, which is only predicted. */
    if (text->count - text->train > block)
        return true;
    return fail(error,
                "%s: of %lld %s the last tenth, %lld, is held out; a block of %d needs at least %d "
                "there",
                path, (long long)text->count, text_unit(text),
                (long long)(text->count - text->train), block, block + 1);
}

static bool tokenize(const char *path, const char *bytes, size_t size, int block, gpt_text *text,
                     const failure *error)
{
    uint32_t *characters = malloc((size + 1) * sizeof *characters);
    if (!characters)
        return fail(error, "%s: out of memory", path);
    text->count = decode_all(path, bytes, size, characters, error);
    bool good = text->count >= 0 && divide(path, block, text, error);
    if (good) {
        text->tokens = malloc((size_t)text->count * sizeof *text->tokens);
        good = text->tokens && collect_vocabulary(text, characters, text->count);
        if (!good)
            fail(error, "%s: out of memory", path);
    }
    for (int64_t i = 0; good && i < text->count; i++)
        text->tokens[i] = find(text, characters[i]);
    free(characters);
    return good;
}

/* Gives the tokens of bytes[size], with those that the tokenizer adds around a text. */
static bool encode_with(const gpt_text *text, const char *name, const char *bytes, size_t size,
                        int32_t **tokens, int64_t *count, const failure *error)
{
    int32_t *ids = NULL;
    uint64_t length = 0;
    if (tsr_tokenizer_encode(text->tokenizer, bytes, size, NULL, &ids, &length) != TSR_OK)
        return fail(error, "%s: %s", name, tsr_last_error());
    *tokens = malloc((size_t)length * sizeof **tokens + 1);
    if (*tokens)
        memcpy(*tokens, ids, (size_t)length * sizeof **tokens);
    *count = (int64_t)length;
    tsr_tokenizer_free_ids(&ids);
    return *tokens ? true : fail(error, "%s: out of memory", name);
}

/* Returns the place of a string in bytes[size], or `size` if it is not there. */
static size_t find_string(const char *bytes, size_t size, const char *string)
{
    const size_t length = strlen(string);
    for (size_t at = 0; at + length <= size; at++) {
        const char *first = memchr(bytes + at, string[0], size - at - length + 1);
        if (!first)
            break;
        at = (size_t)(first - bytes);
        if (memcmp(first, string, length) == 0)
            return at;
    }
    return size;
}

/* Returns the token that ends a text, or −1: the one that the files name, or the only one whose
 * spelling says so. Files of GPT-2 name none, but have <|endoftext|>. */
static int32_t end_token(const tsr_tokenizer *tokenizer)
{
    tsr_tokenizer_info info = TSR_INIT(tsr_tokenizer_info);
    int32_t end = -1;
    int ends = 0;
    if (tsr_tokenizer_get_info(tokenizer, &info) == TSR_OK && info.eos >= 0)
        return info.eos;
    for (int32_t i = 0; i < tsr_tokenizer_size(tokenizer); i++) {
        if (tsr_tokenizer_is_end(tokenizer, i)) {
            end = i;
            ends++;
        }
    }
    return ends == 1 ? end : -1;
}

/* Adds the tokens of a document and `end`, unless the tokenizer has added that. */
static bool add_document(const char *path, const char *bytes, size_t size, int32_t end,
                         gpt_text *text, const failure *error)
{
    int32_t *tokens;
    int64_t count;
    if (size == 0)
        return true;
    if (!encode_with(text, path, bytes, size, &tokens, &count, error))
        return false;
    int32_t *all = realloc(text->tokens, (size_t)(text->count + count + 1) * sizeof *all);
    if (all) {
        memcpy(all + text->count, tokens, (size_t)count * sizeof *all);
        text->tokens = all;
        text->count += count;
        if (count == 0 || tokens[count - 1] != end)
            all[text->count++] = end;
        text->documents++;
    }
    free(tokens);
    return all ? true : fail(error, "%s: out of memory", path);
}

static bool add_documents(const gpt_text_params *params, const char *bytes, size_t size,
                          gpt_text *text, const failure *error)
{
    const size_t length = strlen(params->separator);
    const int32_t end = end_token(text->tokenizer);
    if (end < 0)
        return fail(error,
                    "%s does not say which token ends a text, which --separator needs; "
                    "\"eos_token\" in tokenizer_config.json does",
                    params->tokenizer);
    if (find_string(bytes, size, params->separator) == size)
        return fail(error, "%s does not have the separator '%.80s'", params->path,
                    params->separator);
    for (size_t at = 0; at < size;) {
        const size_t document = find_string(bytes + at, size - at, params->separator);
        if (!add_document(params->path, bytes + at, document, end, text, error))
            return false;
        at += document == size - at ? document : document + length;
    }
    return true;
}

static bool tokenize_with(const gpt_text_params *params, const char *bytes, size_t size,
                          gpt_text *text, const failure *error)
{
    if (tsr_tokenizer_open(params->tokenizer, &text->tokenizer) != TSR_OK)
        return fail(error, "%s", tsr_last_error());
    text->vocabulary = tsr_tokenizer_size(text->tokenizer);
    const bool good = params->separator ? add_documents(params, bytes, size, text, error)
                                        : encode_with(text, params->path, bytes, size,
                                                      &text->tokens, &text->count, error);
    return good && divide(params->path, params->block, text, error);
}

bool text_read(const gpt_text_params *params, gpt_text *out, char *error, size_t error_size)
{
    const failure into = {error, error_size};
    gpt_text text = {.tokenizer_path = params->tokenizer};
    char *bytes;
    size_t size;
    if (!read_file(params->path, FILE_MAX, &bytes, &size, error, error_size))
        return false;
    bool good = size > 0 || fail(&into, "%s: the file is empty", params->path);
    if (good)
        good = params->tokenizer ? tokenize_with(params, bytes, size, &text, &into)
                                 : tokenize(params->path, bytes, size, params->block, &text, &into);
    free(bytes);
    if (good)
        *out = text;
    else
        text_free(&text);
    return good;
}

void text_free(gpt_text *text)
{
    free(text->tokens);
    free(text->characters);
    tsr_tokenizer_close(&text->tokenizer);
    *text = (gpt_text){0};
}

const char *text_unit(const gpt_text *text)
{
    return text->tokenizer ? "tokens" : "characters";
}

/* Adds bytes to a 64-bit FNV-1a hash. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
    return hash;
}

uint64_t text_hash(const gpt_text *text)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (int i = 0; i < text->vocabulary; i++) {
        tsr_token_info token = TSR_INIT(tsr_token_info);
        if (!text->tokenizer) {
            const uint32_t c = text->characters[i];
            const unsigned char bytes[] = {(unsigned char)c, (unsigned char)(c >> 8),
                                           (unsigned char)(c >> 16), (unsigned char)(c >> 24)};
            hash = hash_bytes(hash, bytes, sizeof bytes);
        } else if (tsr_tokenizer_get_token(text->tokenizer, i, &token) == TSR_OK) {
            hash = hash_bytes(hash, token.text,
                              token.size_bytes + 1); /* with the zero byte at its end */
        }
    }
    return hash;
}

bool text_encode(const gpt_text *text, const char *string, int32_t **tokens, int64_t *count,
                 char *error, size_t error_size)
{
    const failure into = {error, error_size};
    if (!string && text->tokenizer) {
        if (!encode_with(text, "the prompt", "", 0, tokens, count, &into))
            return false;
        if (*count > 0)
            return true;
        free(*tokens);
    }
    string = string ? string : "\n";
    size_t size = strlen(string);
    if (text->tokenizer && size > 0)
        return encode_with(text, "the prompt", string, size, tokens, count, &into);
    uint32_t *characters = malloc((size + 1) * sizeof *characters);
    int32_t *found = malloc((size + 1) * sizeof *found);
    bool good = characters && found;
    int64_t length = 0;
    if (!good)
        fail(&into, "out of memory");
    else if (size == 0)
        good = fail(&into, "the prompt is empty");
    if (good) {
        length = decode_all("the prompt", string, size, characters, &into);
        good = length >= 0;
    }
    for (int64_t i = 0; good && i < length; i++) {
        found[i] = find(text, characters[i]);
        if (found[i] < 0)
            good = fail(&into, "the prompt has the character U+%04X, which the text does not have",
                        (unsigned)characters[i]);
    }
    free(characters);
    if (!good) {
        free(found);
        return false;
    }
    *tokens = found;
    *count = length;
    return true;
}

/* Writes a character in UTF-8 to bytes, and returns its length. */
static int write_character(uint32_t c, char bytes[4])
{
    if (c < 0x80) {
        bytes[0] = (char)c;
        return 1;
    }
    const int length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint32_t first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int i = length - 1; i > 0; i--) {
        bytes[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    bytes[0] = (char)(first[length] | c);
    return length;
}

void text_print(const gpt_text *text, tsr_decode_state *state, int32_t token, FILE *file)
{
    char character[4];
    const char *bytes = character;
    size_t size = 0;
    if (!text->tokenizer)
        size = (size_t)write_character(text->characters[token], character);
    else if (tsr_tokenizer_decode_next(text->tokenizer, state, token, &bytes, &size) != TSR_OK)
        return; /* a model's vocabulary may be larger than the tokenizer's: the token has no text */
    fwrite(bytes, 1, size, file);
}

bool text_is_end(const gpt_text *text, int32_t token)
{
    return text->tokenizer && tsr_tokenizer_is_end(text->tokenizer, token);
}

/* Returns the vocabulary as a BPE tokenizer without merges: each token is a character. */
static json_t *tokenizer_json(const gpt_text *text)
{
    json_t *vocabulary = json_object();
    for (int i = 0; i < text->vocabulary; i++) {
        char bytes[5] = "";
        bytes[write_character(text->characters[i], bytes)] = '\0';
        json_object_set_new(vocabulary, bytes, json_integer(i));
    }
    return json_pack("{s:s, s:[], s:n, s:n, s:n, s:{s:s}, s:{s:s, s:n, s:b, s:b, s:o, s:[]}}",
                     "version", "1.0", "added_tokens", "normalizer", "pre_tokenizer",
                     "post_processor", "decoder", "type", "Fuse", "model", "type", "BPE",
                     "unk_token", "fuse_unk", 0, "byte_fallback", 0, "vocab", vocabulary, "merges");
}

/* The files that together are a tokenizer. One of the first two is necessary. */
static const char *const tokenizer_files[] = {"tokenizer.json", "tokenizer.model",
                                              "tokenizer_config.json"};
#define TOKENIZER_FILES 3
#define NECESSARY_FILES 2

/* Writes the path of a file of the tokenizer. Returns whether it exists. */
static bool tokenizer_file(const gpt_text *text, int i, size_t size, char *path)
{
    char inside[PATH_SIZE];
    const bool is_folder =
        (size_t)snprintf(inside, sizeof inside, "%s/", text->tokenizer_path) < sizeof inside &&
        access(inside, F_OK) == 0;
    return path_beside(is_folder ? inside : text->tokenizer_path, tokenizer_files[i], size, path) &&
           access(path, R_OK) == 0;
}

bool text_check_tokenizer(const gpt_text *text, char *error, size_t error_size)
{
    const failure into = {error, error_size};
    char path[PATH_SIZE];
    for (int i = 0; i < NECESSARY_FILES; i++)
        if (!text->tokenizer || tokenizer_file(text, i, sizeof path, path))
            return true;
    return fail(&into,
                "--save copies tokenizer.json or tokenizer.model, and there is none at %s; "
                "tessera convert makes a folder with one from a GGUF file",
                text->tokenizer_path);
}

static bool copy_file(const char *from, const char *to, const failure *error)
{
    char *bytes;
    size_t size;
    if (!read_file(from, FILE_MAX, &bytes, &size, error->text, error->size))
        return false;
    FILE *file = fopen(to, "wb");
    bool good = file && fwrite(bytes, 1, size, file) == size;
    good = (!file || fclose(file) == 0) && good;
    free(bytes);
    return good || fail(error, "%s: %s", to, strerror(errno));
}

static bool copy_tokenizer(const gpt_text *text, const char *model, const failure *error)
{
    char from[PATH_SIZE], to[PATH_SIZE];
    struct stat source, target;
    for (int i = 0; i < TOKENIZER_FILES; i++) {
        if (!tokenizer_file(text, i, sizeof from, from))
            continue;
        if (!path_beside(model, tokenizer_files[i], sizeof to, to))
            return fail(error, "%s: the path is too long", model);
        /* The model may be saved into the folder from which it was read. */
        if (stat(from, &source) == 0 && stat(to, &target) == 0 && source.st_dev == target.st_dev &&
            source.st_ino == target.st_ino)
            continue;
        if (!copy_file(from, to, error))
            return false;
    }
    return true;
}

bool text_write_tokenizer(const gpt_text *text, const char *model, char *error, size_t error_size)
{
    char path[PATH_SIZE];
    const failure into = {error, error_size};
    if (text->tokenizer)
        return copy_tokenizer(text, model, &into);
    if (!path_beside(model, tokenizer_files[0], sizeof path, path))
        return fail(&into, "%s: the path is too long", model);
    json_t *root = tokenizer_json(text);
    const int status = root ? json_dump_file(root, path, JSON_COMPACT) : -1;
    json_decref(root);
    return status == 0 ? true
                       : fail(&into, "%s: %s", path, root ? strerror(errno) : "out of memory");
}
