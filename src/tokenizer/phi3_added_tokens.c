#include "tokenizer/phi3_added_tokens.h"

#include <string.h>

const char *const tsr__phi3_plain[TSR__PHI3_PLAIN] = {"<unk>", "<s>", "<|endoftext|>"};

/* Returns whether text[size] starts with `word`, which is in small letters. */
static bool starts_with(const char *text, size_t size, const char *word)
{
    const size_t length = strlen(word);
    if (size < length)
        return false;
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != word[i])
            return false;
    }
    return true;
}

bool tsr__is_phi3(const char *name, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (starts_with(name + i, size - i, "phi-3") || starts_with(name + i, size - i, "phi3"))
            return true;
    return false;
}

bool tsr__phi3_strips(const char *text, size_t size)
{
    for (int i = 0; i < TSR__PHI3_PLAIN; i++)
        if (strlen(tsr__phi3_plain[i]) == size && memcmp(tsr__phi3_plain[i], text, size) == 0)
            return false;
    return true;
}
