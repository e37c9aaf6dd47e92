/* Messages and the tokens that the model must produce: those of a reply from where the format's
 * prompt ends to the token that ends the reply. */
#include <stdlib.h>
#include <string.h>

#include "cli/finetune/data_document.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"
#include "cli/lib/tools.h"

/* A conversation as the library takes it. */
typedef struct conversation {
    const data_form *form;
    tsr_chat_format format;
    cli_tool_style style;
    tsr_chat_message *messages;
    cli_text *texts;
    size_t *numbers; /* of the messages in the line; those of a reply with calls have the same */
    float *weights;  /* of the messages that are trained; 0: the others */
    size_t count;
    size_t number;             /* of the line's message that is being added */
    bool has_tools, described; /* described: the tools have been */
} conversation;

static void conversation_free(conversation *c)
{
    for (size_t i = 0; i < c->count; i++)
        cli_text_free(&c->texts[i]);
    free(c->messages);
    free(c->texts);
    free(c->weights);
    free(c->numbers);
}

/* Messages of the line ------------------------------------------------------------------------- */

static cli_text *begin(conversation *c, tsr_chat_role role, float weight)
{
    c->messages[c->count] = TSR_INIT(tsr_chat_message);
    c->messages[c->count].role = role;
    c->weights[c->count] = weight;
    c->numbers[c->count] = c->number;
    return &c->texts[c->count++];
}

/* Appends a content: a string, or a list of parts that are texts. A NULL or null is empty. */
static bool add_content(const json_t *content, cli_text *out)
{
    const json_t *part;
    size_t i;
    if (json_is_string(content))
        cli_text_add(out, json_string_value(content), json_string_length(content));
    if (content == NULL || json_is_null(content) || json_is_string(content))
        return true;
    json_array_foreach((json_t *)content, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        if (!json_is_string(text))
            return false;
        cli_text_add(out, json_string_value(text), json_string_length(text));
    }
    return json_is_array(content);
}

/* The factor of a reply's loss: its member weight, or 0 if its member train is false. */
static bool read_weight(const json_t *message, float *out)
{
    const json_t *weight = json_object_get(message, "weight");
    *out = json_is_false(json_object_get(message, "train")) ? 0.0F : 1.0F;
    if (weight == NULL)
        return true;
    *out *= (float)json_number_value(weight);
    return json_is_number(weight) && *out >= 0 && *out <= 1e6F;
}

static void add_system(conversation *c, const json_t *tools, const cli_text *content)
{
    cli_text *text = begin(c, TSR_CHAT_SYSTEM, 0);
    if (tools != NULL)
        cli_tools_in_system(c->style, tools, content->data, text);
    else
        cli_text_add(text, content->data, content->size);
}

static void add_user(conversation *c, const json_t *tools, bool is_last, const cli_text *content)
{
    if (tools != NULL && cli_tools_before_user(c->style, !c->described, is_last))
        cli_text_add_spaced(begin(c, TSR_CHAT_TOOLS, 0), tools, 0);
    cli_text *text = begin(c, TSR_CHAT_USER, 0);
    if (tools != NULL && !c->described)
        cli_tools_in_user(c->style, tools, text);
    c->described = true;
    cli_text_add(text, content->data, content->size);
}

static void add_result(conversation *c, const json_t *message, const cli_text *content)
{
    const char *id = json_string_value(json_object_get(message, "tool_call_id"));
    const bool joins = c->count > 0 && c->messages[c->count - 1].role == TSR_CHAT_RESULT &&
                       cli_tool_results_join(c->style);
    cli_text *text = joins ? &c->texts[c->count - 1] : begin(c, TSR_CHAT_RESULT, 0);
    cli_tool_result(c->style, id, content->data != NULL ? content->data : "", text);
    if (cli_tools_name_calls(c->style))
        c->messages[c->count - 1].call_id = id != NULL ? cli_tool_short_id(id) : "";
    c->has_tools = true;
}

/* Adds each call of a message as one of its own, whose text are the arguments. */
static bool add_named_calls(conversation *c, const json_t *calls, size_t index, float weight,
                            const cli_text *content, data_problem *problem)
{
    if (cli_tools_have_preambles(c->style) && content->size > 0)
        cli_text_add(begin(c, TSR_CHAT_PREAMBLE, weight), content->data, content->size);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        json_t *arguments = data_tools_arguments(c->style, calls, i, index, problem);
        if (arguments == NULL)
            return false;
        cli_text_add_spaced(begin(c, TSR_CHAT_CALLS, weight), arguments, 0);
        const char *id = data_tools_id(call);
        c->messages[c->count - 1].tool = data_tools_name(call);
        c->messages[c->count - 1].call_id = id != NULL ? cli_tool_short_id(id) : "";
        json_decref(arguments);
    }
    return true;
}

static bool add_reply(conversation *c, const json_t *message, size_t index, float weight,
                      const cli_text *content, data_problem *problem)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    const bool called = json_array_size(calls) > 0;
    if (!called && content->size == 0)
        return data_refuse(problem, DATA_EMPTY, "the reply in message %zu is empty", index);
    c->has_tools = c->has_tools || called;
    if (called && cli_tools_name_calls(c->style))
        return add_named_calls(c, calls, index, weight, content, problem);
    cli_text *text = begin(c, called ? TSR_CHAT_CALLS : TSR_CHAT_ASSISTANT, weight);
    if (!called || c->style == CLI_TOOLS_HERMES)
        cli_text_add(text, content->data, content->size);
    return !called || data_tools_calls(c->style, calls, index, text, problem);
}

static bool add_with_role(conversation *c, const json_t *message, size_t index, bool is_last_user,
                          bool trained, const json_t *tools, const cli_text *content,
                          data_problem *problem)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    float weight = 0;
    if (role == NULL)
        return data_refuse(problem, DATA_NO_FORM, "message %zu has no role", index);
    if ((strcmp(role, "tool") == 0 || json_array_size(json_object_get(message, "tool_calls")) > 0 ||
         tools != NULL) &&
        !data_tools_possible(c->style))
        return data_refuse(problem, DATA_NO_FORM, "the format %s has no messages with tools",
                           tsr_chat_format_name(c->format));
    if (index == 0 && tools != NULL && strcmp(role, "user") == 0 &&
        (c->style == CLI_TOOLS_HERMES || c->style == CLI_TOOLS_LLAMA))
        add_system(c, tools, &(cli_text){0});
    if (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0)
        add_system(c, index == 0 ? tools : NULL, content);
    else if (strcmp(role, "user") == 0)
        add_user(c, tools, is_last_user, content);
    else if (strcmp(role, "tool") == 0)
        add_result(c, message, content);
    else if (strcmp(role, "assistant") != 0)
        return data_refuse(problem, DATA_NO_FORM,
                           "message %zu has the role '%.40s'; system, developer, user, assistant "
                           "and tool are possible",
                           index, role);
    else if (!read_weight(message, &weight))
        return data_refuse(problem, DATA_NO_FORM,
                           "the weight of message %zu is no number from 0 to 1e6", index);
    else
        return add_reply(c, message, index, trained ? weight : 0, content, problem);
    return true;
}

static bool is_user(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role != NULL && strcmp(role, "user") == 0;
}

static bool add_messages(conversation *c, const json_t *messages, size_t first, const json_t *tools,
                         data_problem *problem)
{
    const size_t count = json_array_size(messages);
    size_t last_user = count;
    for (size_t i = 0; i < count; i++)
        if (is_user(json_array_get(messages, i)))
            last_user = i;
    for (size_t i = 0; i < count; i++) {
        const json_t *message = json_array_get(messages, i);
        cli_text content = {0};
        c->number = i;
        bool good =
            json_is_object(message) && add_content(json_object_get(message, "content"), &content);
        if (!good)
            data_refuse(problem, DATA_NO_FORM,
                        "the content of message %zu is neither a text nor a list of texts", i);
        else
            good =
                add_with_role(c, message, i, i == last_user, i >= first, tools, &content, problem);
        cli_text_free(&content);
        if (!good)
            return false;
    }
    for (size_t i = 0; i < c->count; i++) {
        c->messages[i].text = c->texts[i].data;
        c->messages[i].size_bytes = c->texts[i].size;
    }
    return true;
}

/* Tokens --------------------------------------------------------------------------------------- */

typedef struct tokens {
    int32_t *ids;
    uint64_t count;
} tokens;

/* Encodes messages from … end − 1; `reasoning` counts if a reply is begun. */
static bool encode(const conversation *c, size_t from, size_t end, bool begin_reply,
                   tsr_chat_reasoning reasoning, tokens *out, data_problem *problem)
{
    const tsr_chat_params params = {.struct_size = sizeof params,
                                    .format = c->format,
                                    .messages = c->messages + from,
                                    .count = (int)(end - from),
                                    .after = from > 0 ? TSR_CHAT_AFTER_END : TSR_CHAT_AFTER_NOTHING,
                                    .begin_reply = begin_reply,
                                    .reasoning = reasoning};
    if (tsr_chat_encode(c->form->tokenizer, &params, &out->ids, &out->count) == TSR_OK)
        return true;
    const char *text = tsr_last_error();
    return data_refuse(problem, DATA_NO_FORM, "%s",
                       strncmp(text, "chat: ", 6) == 0 ? text + 6 : text);
}

/* Returns whether tokens end in reasoning that has been begun. */
static bool ends_in_thought(const conversation *c, const tokens *t)
{
    const int32_t begin = tsr_tokenizer_find(c->form->tokenizer, "<think>", 7),
                  end = tsr_tokenizer_find(c->form->tokenizer, "</think>", 8);
    bool thinks = false;
    /* only line breaks may follow: earlier ones can be those of a message */
    for (uint64_t i = t->count > 3 ? t->count - 3 : 0; i < t->count; i++)
        thinks = t->ids[i] != end && (thinks || (begin >= 0 && t->ids[i] == begin));
    return thinks;
}

/* Encodes the prompt of a reply. Replies of the data are answers, so a prompt that would begin the
 * reasoning has an empty one. */
static bool encode_prompt(const conversation *c, size_t from, size_t reply, tokens *out,
                          data_problem *problem)
{
    if (!encode(c, from, reply, true, TSR_CHAT_REASONING_DEFAULT, out, problem))
        return false;
    if (!ends_in_thought(c, out))
        return true;
    tsr_tokenizer_free_ids(&out->ids);
    return encode(c, from, reply, true, TSR_CHAT_REASONING_NONE, out, problem);
}

static char *text_of(const conversation *c, const tokens *t, size_t *size)
{
    char *text = NULL;
    *size = 0;
    if (tsr_tokenizer_decode(c->form->tokenizer, t->ids, t->count, TSR_DECODE_CONTROL_SPELL, 0,
                             NULL, size) != TSR_OK)
        return NULL;
    text = cli_alloc(*size + 1, 1);
    if (tsr_tokenizer_decode(c->form->tokenizer, t->ids, t->count, TSR_DECODE_CONTROL_SPELL, *size,
                             text, size) == TSR_OK)
        return text;
    free(text);
    return NULL;
}

/* Returns whether the text of a prompt is the beginning of the text with the reply. It is not if
 * the format begins replies in prompts with a string that earlier replies do not have. */
static bool begins_with(const conversation *c, const tokens *prompt, const tokens *whole)
{
    size_t sizes[2] = {0, 0};
    char *texts[2] = {text_of(c, prompt, &sizes[0]), text_of(c, whole, &sizes[1])};
    const bool begins = texts[0] != NULL && texts[1] != NULL && sizes[0] <= sizes[1] &&
                        memcmp(texts[0], texts[1], sizes[0]) == 0;
    free(texts[0]);
    free(texts[1]);
    return begins;
}

static uint64_t common(const tokens *a, const tokens *b)
{
    uint64_t same = 0;
    while (same < a->count && same < b->count && a->ids[same] == b->ids[same])
        same++;
    return same;
}

/* Returns the number of messages that a reply consists of: with calls, these can be several. */
static size_t reply_size(const conversation *c, size_t reply)
{
    size_t size = 1;
    while (reply + size < c->count && c->numbers[reply + size] == c->numbers[reply])
        size++;
    return size;
}

/* Appends a turn: the messages from … reply − 1 and the reply. Their first `known` tokens are in
 * the document already. */
static bool add_turn(const conversation *c, size_t from, size_t reply, uint64_t known,
                     data_document *out, data_problem *problem)
{
    const float other = c->form->loss_on_all ? 1 : 0;
    tokens prompt = {0}, whole = {0};
    bool good = encode(c, from, reply + reply_size(c, reply), false, TSR_CHAT_REASONING_DEFAULT,
                       &whole, problem) &&
                encode_prompt(c, from, reply, &prompt, problem);
    if (good && whole.count < known)
        good =
            data_refuse(problem, DATA_NO_FORM, "message %zu changes the tokens before it", reply);
    if (good) {
        const uint64_t same = common(&prompt, &whole);
        const bool replaces = same < prompt.count && !begins_with(c, &prompt, &whole);
        const tokens *front = replaces ? &prompt : &whole;
        const uint64_t length = replaces ? prompt.count : same;
        if (known < length)
            data_document_add(out, front->ids + known, length - known, other);
        const uint64_t start = same > known ? same : known;
        data_document_add(out, whole.ids + start, whole.count - start,
                          c->form->loss_on_all && c->weights[reply] == 0 ? other
                                                                         : c->weights[reply]);
    }
    tsr_tokenizer_free_ids(&prompt.ids);
    tsr_tokenizer_free_ids(&whole.ids);
    return good;
}

static bool is_reply(const conversation *c, size_t i)
{
    const tsr_chat_role role = c->messages[i].role;
    return role == TSR_CHAT_ASSISTANT || role == TSR_CHAT_CALLS || role == TSR_CHAT_PREAMBLE;
}

/* Appends the messages after the last reply, which are trained only with loss_on_all. */
static bool add_rest(const conversation *c, size_t from, data_document *out, data_problem *problem)
{
    tokens rest = {0};
    if (!c->form->loss_on_all || from == 0 || from >= c->count || c->has_tools)
        return true;
    if (!encode(c, from, c->count, false, TSR_CHAT_REASONING_DEFAULT, &rest, problem))
        return false;
    data_document_add(out, rest.ids, rest.count, 1);
    tsr_tokenizer_free_ids(&rest.ids);
    return true;
}

/* Checks that user and assistant take turns. */
static bool check_order(const conversation *c, data_problem *problem)
{
    static const char *const names[] = {"the system's",    "the user's",     "the assistant's",
                                        "a list of tools", "calls of tools", "a tool's result",
                                        "reasoning",       "calls of tools"};
    bool user = true; /* the turn is the user's */
    for (size_t i = 0; i < c->count; i++) {
        const tsr_chat_role role = c->messages[i].role,
                            before = i > 0 ? c->messages[i - 1].role : TSR_CHAT_USER;
        const bool reply = is_reply(c, i), result = role == TSR_CHAT_RESULT,
                   good = role == TSR_CHAT_SYSTEM  ? i == 0
                          : role == TSR_CHAT_TOOLS ? user
                          : result ? before == TSR_CHAT_CALLS || before == TSR_CHAT_RESULT
                                   : reply != user;
        if (!good)
            return data_refuse(problem, DATA_NO_FORM, "message %zu is %s, where %s is needed",
                               c->numbers[i], names[role],
                               result ? "a call of tools before it" : names[user ? 1 : 2]);
        if (role != TSR_CHAT_SYSTEM && role != TSR_CHAT_TOOLS)
            user = reply;
        i += reply ? reply_size(c, i) - 1 : 0;
    }
    return true;
}

/* A turn is encoded with the turn before it ended, as chats encode it while they go on; with
 * results of tools, which cannot begin a turn, all turns are encoded from the start. */
static bool add_turns(const conversation *c, data_document *out, data_problem *problem)
{
    size_t from = 0;
    if (!check_order(c, problem))
        return false;
    for (size_t i = 0; i < c->count; i++) {
        if (!is_reply(c, i))
            continue;
        if (!add_turn(c, c->has_tools ? 0 : from, i, c->has_tools ? out->count : 0, out, problem))
            return false;
        i += reply_size(c, i) - 1;
        from = i + 1;
    }
    if (from == 0)
        return data_refuse(problem, DATA_NO_REPLY, "there is no turn of the assistant");
    return add_rest(c, from, out, problem);
}

bool data_chat_add(const data_form *form, const json_t *messages, size_t first, const json_t *tools,
                   data_document *out, data_problem *problem)
{
    size_t most = 2 * json_array_size(messages) + 2;
    conversation c = {.form = form, .format = form->format};
    if (json_array_size(messages) == 0)
        return data_refuse(problem, DATA_EMPTY, "there are no messages");
    if (json_array_size(messages) > TSR_CHAT_MAX_MESSAGES)
        return data_refuse(problem, DATA_LONG, "there are %zu messages; up to %d are possible",
                           json_array_size(messages), TSR_CHAT_MAX_MESSAGES);
    if (c.format == TSR_CHAT_MODEL && tsr_chat_format_of(form->tokenizer, &c.format) != TSR_OK)
        return data_refuse(problem, DATA_NO_FORM, "%s", cli_without_module(tsr_last_error()));
    c.style = cli_tool_style_of(c.format);
    if (!json_is_array(tools) || json_array_size(tools) == 0)
        tools = NULL;
    for (size_t i = 0; i < json_array_size(messages); i++)
        most += json_array_size(json_object_get(json_array_get(messages, i), "tool_calls"));
    c.messages = cli_alloc(most, sizeof *c.messages);
    c.texts = cli_alloc(most, sizeof *c.texts);
    c.weights = cli_alloc(most, sizeof *c.weights);
    c.numbers = cli_alloc(most, sizeof *c.numbers);
    const bool good =
        add_messages(&c, messages, first, tools, problem) && add_turns(&c, out, problem);
    conversation_free(&c);
    return good;
}
