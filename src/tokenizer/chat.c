/* The chat template of a tokenizer: how messages become a text. It is not used here, but belongs to
 * a model that is converted. */
#include <string.h>

#include "base/alloc.h"
#include "tokenizer/open.h"
#include "json/json.h"

/* Reads a string of the document into memory that the caller must free. */
static tsr_status read_string(tsr__json *json, char **out)
{
    char *text = tsr__calloc(json->size + 1, 1);
    if (text == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr__json_string(json, json->size + 1, text);
    if (status == TSR_OK && (*out = tsr__strdup(text)) == NULL)
        status = TSR_ERR_NO_MEMORY;
    tsr__free(text);
    return status;
}

tsr_status tsr__tokenizer_chat_of_config(const char *config, size_t size, char **out)
{
    tsr__json json = {.text = config, .size = size, .what = "tokenizer_config.json"};
    char key[TSR__JSON_TEXT];
    bool more = false;
    *out = NULL;
    TSR__TRY(tsr__json_enter(&json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(&json, key, &more));
        if (!more)
            return TSR_OK;
        if (strcmp(key, "chat_template") == 0 && tsr__json_peek(&json) == '"')
            return read_string(&json, out);
        TSR__TRY(tsr__json_skip(&json));
    }
}
