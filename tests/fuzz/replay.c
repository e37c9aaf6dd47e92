/* replay FOLDER: runs a fuzz target on every file of its corpus, and prints TAP. A target that
 * finds an error aborts; the missing TAP plan makes the test fail. */
#include <dirent.h>

#include "fuzz/fuzz.h"

static int replay(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return 0;
    if (fseek(file, 0, SEEK_END) != 0) {
        fclose(file);
        return 0;
    }
    size_t size = (size_t)ftell(file);
    rewind(file);
    /* The memory has exactly this size, so that reading past the end is detected. */
    uint8_t *data = malloc(size == 0 ? 1 : size);
    int whole = data != NULL && fread(data, 1, size, file) == size;
    fclose(file);
    if (whole)
        LLVMFuzzerTestOneInput(data, size);
    free(data);
    return whole;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (folder == NULL) {
        fprintf(stderr, "replay: no folder %s\n", argc == 2 ? argv[1] : "");
        return EXIT_FAILURE;
    }
    int count = 0, failed = 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        int done = replay(argv[1], entry->d_name);
        failed += !done;
        printf("%sok %d - %s\n", done ? "" : "not ", ++count, entry->d_name);
        fflush(stdout);
    }
    closedir(folder);
    if (count == 0)
        fprintf(stderr, "replay: %s is empty\n", argv[1]);
    printf("1..%d\n", count);
    return count > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
