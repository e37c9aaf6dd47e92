/* Opens tokenizer.model beside a tokenizer.json, for the scores of tokens that tokenizer.json
 * lacks. In some of these pairs of files, tokenizer.json splits texts differently than
 * SentencePiece does. Therefore the ids that both files give for a few texts are compared. */
#include <string.h>

#include "base/alloc.h"
#include "tokenizer/tokenizer_read.h"
#include "tokenizer/tokenizer_write.h"

static const char *const samples[] = {
    "Hello world",
    " two  spaces   three",
    "The quick brown fox jumps over the lazy dog, doesn't it?",
    "1234567890 3.14 x=y+z; for (int i = 0; i < n; i++) { a[i] *= 2; }",
    "\tTabs\nand\r\nlines\n\n\n",
    "Na\u00efve caf\u00e9 \u4f60\u597d \u043f\u0440\u0438\u0432\u0435\u0442 \U0001f600",
    "unbelievably internationalization aaaaaaaaaaaaaaaa",
};

static tsr_status encode(const tsr_tokenizer *tokenizer, const char *text, int32_t **ids,
                         uint64_t *count)
{
    return tsr_tokenizer_encode(tokenizer, text, strlen(text),
                                tsr_encode_params(.add = TSR_ENCODE_ADD_NONE), ids, count);
}

static tsr_status compare_ids(const tsr_tokenizer *a, const tsr_tokenizer *b, const char *text)
{
    int32_t *x = NULL, *y = NULL;
    uint64_t x_count = 0, y_count = 0;
    char shown[TSR__SPELLING_TEXT];
    tsr_status status = encode(a, text, &x, &x_count);
    if (status == TSR_OK)
        status = encode(b, text, &y, &y_count);
    if (status == TSR_OK && (x_count != y_count || memcmp(x, y, (size_t)x_count * sizeof *x) != 0))
        status = tsr__fail(TSR_ERR_UNSUPPORTED,
                           "tokenizer: tokenizer.json and tokenizer.model give different ids for "
                           "%s",
                           tsr__spelling_text(text, strlen(text), shown));
    tsr_tokenizer_free_ids(&x);
    tsr_tokenizer_free_ids(&y);
    return status;
}

static tsr_status read_scores_into(tsr__file *file, const tsr_tokenizer *json,
                                   tsr_tokenizer *tokenizer)
{
    TSR__TRY(tsr__tokenizer_check_added("tokenizer.model", true, json));
    TSR__TRY(tsr__tokenizer_read_model_with(file, json, tokenizer));
    if (json->chat_template != NULL) {
        tokenizer->chat_template = tsr__strdup(json->chat_template);
        if (tokenizer->chat_template == NULL)
            return TSR_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        TSR__TRY(compare_ids(json, tokenizer, samples[i]));
    return TSR_OK;
}

tsr_status tsr__tokenizer_open_scores(const char *path, const tsr_tokenizer *json,
                                      tsr_tokenizer **out)
{
    tsr__file file;
    TSR__TRY(tsr__file_open(path, &file));
    tsr_tokenizer *tokenizer = tsr__tokenizer_create();
    const tsr_status status =
        tokenizer != NULL ? read_scores_into(&file, json, tokenizer) : TSR_ERR_NO_MEMORY;
    tsr__file_close(&file);
    if (status != TSR_OK) {
        tsr_tokenizer_close(&tokenizer);
        return status;
    }
    *out = tokenizer;
    return TSR_OK;
}
