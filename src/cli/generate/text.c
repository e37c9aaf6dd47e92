/* The text of tessera generate: prompts become tokens, tokens become text, and strings end it. */
#include <stdlib.h>
#include <string.h>

#include "cli/generate/generate.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

/* Returns the path of the model's tokenizer: the model itself, or the folder of a safetensors
 * file. */
static char *tokenizer_path(const char *model)
{
    char *path = cli_alloc(strlen(model) + 2, 1), *slash;
    strcpy(path, model);
    if (strstr(model, ".safetensors") == NULL)
        return path;
    slash = strrchr(path, '/');
    if (slash != NULL)
        slash[1] = '\0';
    else
        strcpy(path, ".");
    return path;
}

/* A model without a tokenizer can continue ids only. */
static bool needs_text(void)
{
    bool needed = generate_chosen.stop_count > 0;
    for (int i = 0; i < generate_chosen.prompt_count; i++)
        needed = needed || generate_chosen.prompts[i].text != NULL;
    return needed;
}

static tsr_status encode(generate_prompt *prompt, const tsr_tokenizer *tokenizer)
{
    int32_t *ids = NULL;
    uint64_t count = 0;
    const tsr_status status =
        tsr_tokenizer_encode(tokenizer, prompt->text, strlen(prompt->text), NULL, &ids, &count);
    if (status != TSR_OK)
        return status;
    prompt->ids = cli_alloc((size_t)count + 1, sizeof *prompt->ids);
    memcpy(prompt->ids, ids, (size_t)count * sizeof *ids);
    prompt->count = (int64_t)count;
    tsr_tokenizer_free_ids(&ids);
    return TSR_OK;
}

tsr_status generate_text_open(tsr_tokenizer **out)
{
    char *path = tokenizer_path(generate_chosen.model);
    tsr_status status = tsr_tokenizer_open(path, out);
    free(path);
    if (status != TSR_OK)
        return needs_text() || status == TSR_ERR_NO_MEMORY ? status : TSR_OK;
    for (int i = 0; i < generate_chosen.prompt_count && status == TSR_OK; i++)
        if (generate_chosen.prompts[i].text != NULL)
            status = encode(&generate_chosen.prompts[i], *out);
    return status;
}

int generate_end_tokens(const tsr_tokenizer *tokenizer, int most, int32_t *ids)
{
    int count = 0;
    for (int32_t id = 0; tokenizer != NULL && id < tsr_tokenizer_size(tokenizer); id++)
        if (tsr_tokenizer_is_end(tokenizer, id) && count < most)
            ids[count++] = id;
    return count;
}

void generate_text_add(generate_text *text, const tsr_tokenizer *tokenizer, int32_t id)
{
    const char *bytes = NULL;
    size_t size = 0;
    /* A vocabulary may be padded: the tokens at its end have no text. */
    if (tokenizer == NULL || id >= tsr_tokenizer_size(tokenizer) ||
        tsr_tokenizer_decode_next(tokenizer, &text->state, id, &bytes, &size) != TSR_OK)
        return;
    if (text->size + size >= text->capacity) {
        text->capacity = 2 * (text->size + size) + 64;
        text->bytes = cli_resize(text->bytes, text->capacity, 1);
    }
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    text->bytes[text->size] = '\0';
}

/* Returns where `word` starts in the bytes from `from` on, or SIZE_MAX. */
static size_t find(const generate_text *text, size_t from, const char *word, size_t length)
{
    for (size_t at = from; at + length <= text->size; at++)
        if (memcmp(text->bytes + at, word, length) == 0)
            return at;
    return SIZE_MAX;
}

bool generate_text_stops(generate_text *text)
{
    size_t first = SIZE_MAX;
    for (int i = 0; i < generate_chosen.stop_count; i++) {
        const char *word = generate_chosen.stops[i];
        const size_t at = find(text, text->prompt_size, word, strlen(word));
        first = at < first ? at : first;
    }
    if (first == SIZE_MAX)
        return false;
    text->size = first;
    text->bytes[first] = '\0';
    return true;
}

size_t generate_text_certain(const generate_text *text)
{
    size_t certain = text->size;
    for (int i = 0; i < generate_chosen.stop_count; i++) {
        const char *word = generate_chosen.stops[i];
        size_t length = strlen(word);
        length = length < text->size - text->prompt_size ? length : text->size - text->prompt_size;
        for (; length > 0; length--)
            if (memcmp(text->bytes + text->size - length, word, length) == 0)
                break;
        certain = text->size - length < certain ? text->size - length : certain;
    }
    return certain;
}

/* UTF-8 ---------------------------------------------------------------------------------------- */

/* Returns the length of the valid character at the start of bytes[size], or 0. */
static size_t character(const unsigned char *bytes, size_t size)
{
    const size_t length = bytes[0] < 0x80             ? 1
                          : (bytes[0] & 0xe0) == 0xc0 ? 2
                          : (bytes[0] & 0xf0) == 0xe0 ? 3
                          : (bytes[0] & 0xf8) == 0xf0 ? 4
                                                      : 0;
    if (length == 0 || length > size)
        return 0;
    unsigned code = length == 1 ? bytes[0] : bytes[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (bytes[i] & 0x3fu);
    }
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    return code >= least[length] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? length
                                                                                         : 0;
}

char *generate_text_valid(const char *bytes, size_t size, size_t *valid_size)
{
    static const char replacement[] = "\xef\xbf\xbd";
    char *valid = cli_alloc(3 * size + 1, 1);
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        const size_t length = character((const unsigned char *)bytes + at, size - at);
        memcpy(valid + used, length > 0 ? bytes + at : replacement, length > 0 ? length : 3);
        used += length > 0 ? length : 3;
        at += length > 0 ? length : 1;
    }
    *valid_size = used;
    return valid;
}
