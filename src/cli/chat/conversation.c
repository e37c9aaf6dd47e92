/* What a conversation of tessera chat consists of: its tokens and its texts. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/chat/chat.h"
#include "cli/lib/json.h"
#include "cli/lib/memory.h"

void chat_conversation_add_ids(chat_conversation *c, const int32_t *ids, int64_t count)
{
    if (c->count + count > c->capacity) {
        c->capacity = 2 * (c->count + count);
        c->ids = cli_resize(c->ids, (size_t)c->capacity, sizeof *c->ids);
    }
    if (count > 0)
        memcpy(c->ids + c->count, ids, (size_t)count * sizeof *ids);
    c->count += count;
}

static chat_entry *add_entry(chat_conversation *c, bool reply)
{
    c->entries = cli_resize(c->entries, (size_t)c->entry_count + 1, sizeof *c->entries);
    c->entries[c->entry_count] = (chat_entry){.reply = reply};
    return &c->entries[c->entry_count++];
}

static void append(chat_entry *e, const char *text, size_t size)
{
    e->text = cli_resize(e->text, e->size + size + 1, 1);
    if (size > 0)
        memcpy(e->text + e->size, text, size);
    e->size += size;
    e->text[e->size] = '\0';
}

void chat_conversation_add_message(chat_conversation *c, const char *text, size_t size,
                                   const int32_t *ids, int64_t count)
{
    append(add_entry(c, false), text, size);
    c->message = c->count;
    chat_conversation_add_ids(c, ids, count);
    c->reply = c->count;
    append(add_entry(c, true), "", 0);
}

void chat_conversation_add_reply(chat_conversation *c, const char *text, size_t size)
{
    append(&c->entries[c->entry_count - 1], text, size);
}

void chat_conversation_drop_reply(chat_conversation *c)
{
    chat_entry *last = &c->entries[c->entry_count - 1];
    c->count = c->reply;
    last->size = 0;
    last->text[0] = '\0';
}

void chat_conversation_clear(chat_conversation *c)
{
    for (int i = 0; i < c->entry_count; i++)
        free(c->entries[i].text);
    free(c->entries);
    free(c->ids);
    *c = (chat_conversation){0};
}

/* Saving --------------------------------------------------------------------------------------- */

/* Returns a text with each byte that is not part of valid UTF-8 replaced by a question mark. */
static json_t *text_of(const char *text, size_t size)
{
    json_t *value = json_stringn(text, size);
    if (value != NULL)
        return value;
    char *copy = cli_alloc(size + 1, 1);
    for (size_t i = 0; i < size; i++)
        copy[i] = (text[i] & 0x80) != 0 || text[i] == '\0' ? '?' : text[i];
    value = json_string(copy);
    free(copy);
    return value;
}

static void add_message(json_t *messages, const char *role, const char *text, size_t size)
{
    json_t *message = cli_json_append_object(messages);
    cli_json_text(message, "role", role);
    cli_json_add(message, "content", text_of(text, size));
}

/* Returns the whole text of a conversation without a format. */
static json_t *plain_text(const chat_conversation *c)
{
    chat_entry all = {0};
    for (int i = 0; i < c->entry_count; i++)
        append(&all, c->entries[i].text, c->entries[i].size);
    json_t *value = text_of(all.text != NULL ? all.text : "", all.size);
    free(all.text);
    return value;
}

int chat_conversation_save(const chat_conversation *c, const char *path)
{
    json_t *document = json_object();
    if (chat_chosen.plain) {
        cli_json_add(document, "text", plain_text(c));
    } else {
        json_t *messages = cli_json_add_array(document, "messages");
        if (chat_chosen.system != NULL)
            add_message(messages, "system", chat_chosen.system, strlen(chat_chosen.system));
        for (int i = 0; i < c->entry_count; i++)
            add_message(messages, c->entries[i].reply ? "assistant" : "user", c->entries[i].text,
                        c->entries[i].size);
    }
    const int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    int error = file == NULL ? errno : 0;
    if (file == NULL && descriptor >= 0) {
        close(descriptor);
        remove(path);
    }
    if (error == 0) {
        errno = EIO;
        const bool written =
            json_dumpf(document, file, JSON_COMPACT) == 0 && fputc('\n', file) != EOF;
        error = written ? 0 : errno;
        if (fclose(file) != 0 && error == 0)
            error = errno;
        if (error != 0)
            remove(path);
    }
    json_decref(document);
    return error;
}
