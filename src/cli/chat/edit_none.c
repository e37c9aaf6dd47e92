/* The line editor of tessera chat in a build without libedit: there is none. */
#include "cli/chat/chat.h"

bool chat_edit_begin(void)
{
    return false;
}

const char *chat_edit_line(const char *sign, size_t *size, int *error)
{
    (void)sign;
    *size = 0;
    *error = 0;
    return NULL;
}

void chat_edit_end(void)
{
}
