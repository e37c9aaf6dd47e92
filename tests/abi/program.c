#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void abi_ok(const char *call, tsr_status status)
{
    if (status == TSR_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", call, tsr_status_name(status), tsr_last_error());
    exit(1);
}

#ifdef NEWER
void abi_refused(const char *type, tsr_status status)
{
    char begin[128];
    snprintf(begin, sizeof begin, "%s: struct_size is ", type);
    const char *text = tsr_last_error();
    const char *found = strstr(text, begin);
    if (status == TSR_ERR_INVALID && found && strstr(found, "uses a field of a newer library"))
        return;
    fprintf(stderr, "%s with an unknown field: %s: %s\n", type, tsr_status_name(status),
            status ? text : "accepted");
    exit(1);
}
#endif

void abi_written(const char *type, size_t size, size_t struct_size, uint64_t newer_field,
                 const unsigned char after[64])
{
    int touched = 0;
    for (int i = 0; i < 64; i++)
        touched += after[i] != 0xa5;
    if (struct_size == size && newer_field == 0 && touched == 0)
        return;
    fprintf(stderr,
            "%s: struct_size was %zu and is %zu, the unknown field is %llu, %d bytes behind "
            "it were written\n",
            type, size, struct_size, (unsigned long long)newer_field, touched);
    exit(1);
}

void abi_print(const char *name, int64_t count, const double *values)
{
    printf("%s", name);
    for (int64_t i = 0; i < count; i++)
        printf(" %.9g", values[i]);
    putchar('\n');
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    if (strcmp(argv[1], "device") == 0)
        abi_device();
    else
        abi_host(argv[2]);
    return 0;
}
