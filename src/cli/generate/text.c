/* The text of tessera generate: converts prompts to tokens and tokens to text, and finds the
 * strings that end a text. */
#include <stdlib.h>
#include <string.h>

#include "cli/generate/generate.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

/* Returns whether an option needs the model's tokenizer. Without a tokenizer, prompts and output
 * are ids. */
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
        tsr_tokenizer_encode(tokenizer, prompt->text, prompt->size, NULL, &ids, &count);
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
    tsr_status status = inference_open_tokenizer(out);
    if (status != TSR_OK)
        return needs_text() || status == TSR_ERR_NO_MEMORY ? status : TSR_OK;
    for (int i = 0; i < generate_chosen.prompt_count && status == TSR_OK; i++)
        if (generate_chosen.prompts[i].text != NULL)
            status = encode(&generate_chosen.prompts[i], *out);
    return status;
}

tsr_status generate_text_begin(generate_text *text, const tsr_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return TSR_OK;
    /* JSON must be UTF-8. Other output has the bytes unchanged. */
    return tsr_text_stream_create(
        tsr_text_stream_params(.tokenizer = tokenizer, .stops = generate_chosen.stops,
                               .stop_count = generate_chosen.stop_count,
                               .invalid = generate_chosen.json ? TSR_TEXT_INVALID_REPLACE
                                                               : TSR_TEXT_INVALID_KEEP),
        &text->stream);
}

static void append(generate_text *text, const char *bytes, size_t size)
{
    if (text->size + size >= text->capacity) {
        text->capacity = 2 * (text->size + size) + 64;
        text->bytes = cli_resize(text->bytes, text->capacity, 1);
    }
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
}

/* Returns whether a token has a text. A vocabulary may be padded: the
 * tokens at its end have none. */
static bool has_text(const generate_text *text, const tsr_tokenizer *tokenizer, int32_t id)
{
    return text->stream != NULL && id < tsr_tokenizer_size(tokenizer);
}

tsr_status generate_text_add_prompt(generate_text *text, const tsr_tokenizer *tokenizer, int32_t id)
{
    const char *bytes = NULL;
    size_t size = 0;
    if (!has_text(text, tokenizer, id))
        return TSR_OK;
    const tsr_status status = tsr_text_stream_add_prompt(text->stream, id, &bytes, &size);
    if (status == TSR_OK)
        append(text, bytes, size);
    text->prompt_size = text->size;
    return status;
}

tsr_status generate_text_add(generate_text *text, const tsr_tokenizer *tokenizer, int32_t id,
                             bool *stopped)
{
    const char *bytes = NULL;
    size_t size = 0;
    *stopped = false;
    if (!has_text(text, tokenizer, id))
        return TSR_OK;
    const tsr_status status = tsr_text_stream_add(text->stream, id, &bytes, &size, stopped);
    if (status == TSR_OK)
        append(text, bytes, size);
    return status;
}

tsr_status generate_text_end(generate_text *text)
{
    const char *bytes = NULL;
    size_t size = 0;
    if (text->stream == NULL)
        return TSR_OK;
    const tsr_status status = tsr_text_stream_end(text->stream, &bytes, &size);
    if (status == TSR_OK)
        append(text, bytes, size);
    return status;
}

void generate_text_finish(generate_text *text)
{
    tsr_text_stream_destroy(&text->stream);
    free(text->bytes);
    *text = (generate_text){0};
}
