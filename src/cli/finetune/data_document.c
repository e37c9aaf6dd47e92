/* The forms of a line: text, prompt and completion, messages, pairs of preferences. */
#include "cli/finetune/data_document.h"

#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/say.h"

/* Text ----------------------------------------------------------------------------------------- */

static bool encode(const data_form *form, const char *text, size_t size, int32_t **ids,
                   uint64_t *count, data_problem *problem)
{
    if (tsr_tokenizer_encode(form->tokenizer, text, size, NULL, ids, count) == TSR_OK)
        return true;
    return data_refuse(problem, DATA_NO_FORM, "%s", cli_without_module(tsr_last_error()));
}

/* Appends the token that ends a text, unless the vocabulary has none or the text ends with it. */
static void add_end(const data_form *form, data_document *out)
{
    tsr_tokenizer_info info = TSR_INIT(tsr_tokenizer_info);
    if (tsr_tokenizer_get_info(form->tokenizer, &info) != TSR_OK || info.eos < 0 ||
        (out->count > 0 && out->ids[out->count - 1] == info.eos))
        return;
    data_document_add(out, &info.eos, 1, 1);
}

static bool add_text(const data_form *form, const char *text, size_t size, bool ends,
                     data_document *out, data_problem *problem)
{
    int32_t *ids = NULL;
    uint64_t count = 0;
    if (size == 0)
        return data_refuse(problem, DATA_EMPTY, "the text is empty");
    if (!encode(form, text, size, &ids, &count, problem))
        return false;
    data_document_add(out, ids, count, 1);
    tsr_tokenizer_free_ids(&ids);
    if (ends)
        add_end(form, out);
    out->divisible = true;
    return true;
}

/* A prompt and its completion are encoded as one text, so that the document has exactly this text.
 * The completion begins with the first token that differs from those of the prompt alone. */
static bool add_completion(const data_form *form, const json_t *prompt, const json_t *completion,
                           data_document *out, data_problem *problem)
{
    const size_t size = json_string_length(prompt), more = json_string_length(completion);
    int32_t *ids[2] = {NULL, NULL};
    uint64_t count[2] = {0, 0}, same = 0;
    if (more == 0)
        return data_refuse(problem, DATA_EMPTY, "the completion is empty");
    char *text = cli_alloc(size + more + 1, 1);
    memcpy(text, json_string_value(prompt), size);
    memcpy(text + size, json_string_value(completion), more);
    const bool good = encode(form, text, size, &ids[0], &count[0], problem) &&
                      encode(form, text, size + more, &ids[1], &count[1], problem);
    if (good) {
        while (same < count[0] && same < count[1] && ids[0][same] == ids[1][same])
            same++;
        data_document_add(out, ids[1], same, form->loss_on_all ? 1 : 0);
        data_document_add(out, ids[1] + same, count[1] - same, 1);
        add_end(form, out);
    }
    tsr_tokenizer_free_ids(&ids[0]);
    tsr_tokenizer_free_ids(&ids[1]);
    free(text);
    return good;
}

/* Members of a line ---------------------------------------------------------------------------- */

/* Appends a prompt and what follows it: two texts, or two lists of messages. */
static bool add_reply(const data_form *form, const json_t *line, const char *member,
                      data_document *out, data_problem *problem)
{
    const json_t *prompt = json_object_get(line, "prompt"), *reply = json_object_get(line, member);
    if (json_is_string(prompt) && json_is_string(reply))
        return add_completion(form, prompt, reply, out, problem);
    if (!json_is_array(prompt) || !json_is_array(reply))
        return data_refuse(problem, DATA_NO_FORM,
                           "prompt and %s are not both texts or both lists of messages", member);
    json_t *all = json_copy((json_t *)prompt);
    const bool good = all != NULL && json_array_extend(all, (json_t *)reply) == 0 &&
                      data_chat_add(form, all, json_array_size(prompt),
                                    json_object_get(line, "tools"), out, problem);
    json_decref(all);
    return good;
}

/* Two conversations that begin with the same messages: only what follows these is trained. */
static bool add_conversations(const data_form *form, const json_t *line, data_document out[2],
                              data_problem *problem)
{
    const json_t *chosen = json_object_get(line, "chosen"),
                 *rejected = json_object_get(line, "rejected"),
                 *tools = json_object_get(line, "tools");
    size_t same = 0;
    if (!json_is_array(chosen) || !json_is_array(rejected))
        return data_refuse(problem, DATA_NO_FORM,
                           "a pair has the members prompt, chosen and rejected, or chosen and "
                           "rejected as lists of messages");
    while (same < json_array_size(chosen) && same < json_array_size(rejected) &&
           json_equal(json_array_get(chosen, same), json_array_get(rejected, same)))
        same++;
    return data_chat_add(form, chosen, same, tools, &out[0], problem) &&
           data_chat_add(form, rejected, same, tools, &out[1], problem);
}

static bool add_pair(const data_form *form, const json_t *line, data_document out[2],
                     data_problem *problem)
{
    if (json_object_get(line, "prompt") == NULL)
        return add_conversations(form, line, out, problem);
    return add_reply(form, line, "chosen", &out[0], problem) &&
           add_reply(form, line, "rejected", &out[1], problem);
}

static bool add_line(const data_form *form, const json_t *line, data_document out[2],
                     data_problem *problem)
{
    const json_t *messages = json_object_get(line, "messages"),
                 *text = json_object_get(line, "text");
    if (!json_is_object(line))
        return data_refuse(problem, DATA_NO_FORM, "the line is no JSON object");
    if (form->pairs)
        return add_pair(form, line, out, problem);
    if (json_is_array(messages))
        return data_chat_add(form, messages, 0, json_object_get(line, "tools"), out, problem);
    if (json_object_get(line, "completion") != NULL)
        return add_reply(form, line, "completion", out, problem);
    if (json_is_string(text))
        return add_text(form, json_string_value(text), json_string_length(text), true, out,
                        problem);
    return data_refuse(problem, DATA_NO_FORM,
                       "the line has neither messages nor prompt and completion nor text");
}

static bool is_blank(const data_lines *line)
{
    return strspn(line->text, " \t\r\n") == line->size;
}

static bool read_line(const data_form *form, const data_lines *line, data_document out[2],
                      data_problem *problem)
{
    json_error_t error;
    if (is_blank(line))
        return data_refuse(problem, DATA_EMPTY, "the line is empty");
    json_t *value = json_loadb(line->text, line->size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (value == NULL)
        return data_refuse(problem, DATA_NO_JSON, "no JSON at byte %d: %s", error.position,
                           error.text);
    const bool good = add_line(form, value, out, problem);
    json_decref(value);
    return good;
}

bool data_document_read(const data_form *form, const data_lines *line, data_document out[2],
                        data_problem *problem)
{
    *problem = (data_problem){0};
    out[0] = out[1] = (data_document){0};
    bool good;
    if (!line->is_text)
        good = read_line(form, line, out, problem);
    else if (form->pairs)
        good = data_refuse(problem, DATA_NO_FORM, "a text file has no pairs");
    else
        good = is_blank(line) ? data_refuse(problem, DATA_EMPTY, "the text is empty")
                              : add_text(form, line->text, line->size, false, out, problem);
    for (int i = 0; good && i < (form->pairs ? 2 : 1); i++) {
        if (out[i].count < 2)
            good = data_refuse(problem, DATA_EMPTY, "the text has fewer than two tokens");
        else if (data_document_trained(&out[i], 0, out[i].count) == 0)
            good = data_refuse(problem, DATA_NO_REPLY, "no turn of the assistant is trained");
    }
    if (!good) {
        data_document_free(&out[0]);
        data_document_free(&out[1]);
    }
    return good;
}
