/* Finds the layer of a parameter from its name, and sorts parameters by name. */
#include <stdbool.h>
#include <string.h>

#include "shard/params/params.h"
#include "tessera/shard.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

char *tsr__shard_layer_of(const char *name, size_t size, char *text)
{
    size_t length = strlen(name), kept = length;
    const char *last_dot = strrchr(name, '.');
    if (last_dot != NULL && last_dot != name)
        kept = (size_t)(last_dot - name);
    for (const char *start = name; *start != '\0';) {
        size_t component = strcspn(start, "."), digits = strspn(start, "0123456789");
        if (component > 0 && digits == component) {
            kept = (size_t)(start - name) + component;
            break;
        }
        start += component + (start[component] == '.');
    }
    if (size > 0) {
        kept = kept < size ? kept : size - 1;
        memcpy(text, name, kept);
        text[kept] = '\0';
    }
    return text;
}

int tsr_shard_compare_names(const char *a, const char *b)
{
    const char *x = a, *y = b;
    while (*x != '\0' && *y != '\0') {
        if (is_digit(*x) && is_digit(*y)) {
            x += strspn(x, "0");
            y += strspn(y, "0");
            size_t x_digits = strspn(x, "0123456789"), y_digits = strspn(y, "0123456789");
            if (x_digits != y_digits)
                return x_digits < y_digits ? -1 : 1;
            int order = strncmp(x, y, x_digits);
            if (order != 0)
                return order;
            x += x_digits;
            y += y_digits;
        } else if (*x != *y) {
            return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
        } else {
            x++;
            y++;
        }
    }
    if (*x != '\0' || *y != '\0')
        return *x == '\0' ? -1 : 1;
    return strcmp(a, b);
}
