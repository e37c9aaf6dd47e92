/* Messages of the tool's commands. Ranks that fail for the same reason print the same message,
 * which is passed on once. */
#include <stdlib.h>
#include <string.h>

#include "cli/launch/launch.h"
#include "cli/lib/memory.h"

/* The tool begins its messages with this (cli/lib/say.c). Other lines are always passed on. */
static const char start[] = "tessera: ";

/* Returns the message with this text, after adding it if it is new; NULL if there are too many. */
static launch_message *find_message(launch_messages *messages, const char *text, size_t length)
{
    for (int i = 0; i < messages->count; i++) {
        launch_message *message = &messages->each[i];
        if (message->length == length && memcmp(message->text, text, length) == 0)
            return message;
    }
    if (messages->count == LAUNCH_MAX_MESSAGES)
        return NULL;
    launch_message *message = &messages->each[messages->count++];
    message->text = cli_alloc(length, 1);
    memcpy(message->text, text, length);
    message->length = length;
    message->times = cli_alloc((size_t)messages->ranks, sizeof *message->times);
    message->passed = 0;
    return message;
}

bool launch_messages_pass(launch_messages *messages, int rank, const char *line, size_t length)
{
    if (length < sizeof start - 1 || memcmp(line, start, sizeof start - 1) != 0)
        return true;
    launch_message *message = find_message(messages, line, length);
    if (message == NULL)
        return true;
    if (++message->times[rank] <= message->passed)
        return false;
    message->passed++;
    return true;
}

void launch_messages_finish(launch_messages *messages)
{
    for (int i = 0; i < messages->count; i++) {
        free(messages->each[i].text);
        free(messages->each[i].times);
    }
    messages->count = 0;
}
