/* Reads the chat template in tokenizer_config.json. */
#include <string.h>

#include "base/alloc.h"
#include "tokenizer/tokenizer_read.h"
#include "json/json.h"

/* Reads a JSON string into new memory, which the caller must free. */
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

/* Reads {"name": …, "template": …}. The caller must free both strings; one that is missing is not
 * set. */
static tsr_status read_named(tsr__json *json, char **name, char **template)
{
    char key[TSR__JSON_TEXT];
    bool more = false;
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(json, key, &more));
        if (!more)
            return TSR_OK;
        char **to = strcmp(key, "name") == 0       ? name
                    : strcmp(key, "template") == 0 ? template
                                                   : NULL;
        if (to != NULL && *to == NULL && tsr__json_peek(json) == '"')
            TSR__TRY(read_string(json, to));
        else
            TSR__TRY(tsr__json_skip(json));
    }
}

/* Reads a list of named templates. Sets *out to the template named "default". */
static tsr_status read_template_list(tsr__json *json, char **out)
{
    bool more = false;
    TSR__TRY(tsr__json_enter(json, '['));
    for (;;) {
        char *name = NULL, *template = NULL;
        TSR__TRY(tsr__json_element(json, &more));
        if (!more)
            return TSR_OK;
        const tsr_status status = read_named(json, &name, &template);
        if (status == TSR_OK && name != NULL && strcmp(name, "default") == 0 && *out == NULL) {
            *out = template;
            template = NULL;
        }
        tsr__free(name);
        tsr__free(template);
        TSR__TRY(status);
    }
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
        if (strcmp(key, "chat_template") == 0 && tsr__json_peek(&json) == '[')
            return read_template_list(&json, out);
        TSR__TRY(tsr__json_skip(&json));
    }
}
