#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "parallel/checkpoint/parts.h"
#include "platform/paths.h"

static const char ending[] = ".safetensors", index_ending[] = ".safetensors.index.json";

static bool ends_with(const char *text, size_t length, const char *end)
{
    const size_t size = strlen(end);
    return length >= size && memcmp(text + length - size, end, size) == 0;
}

tsr_status tsr__part_place_init(const char *who, const char *path, tsr__part_place *out)
{
    const char *slash = tsr__path_last_separator(path);
    const size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    const char *name = path + folder;
    size_t length = strlen(name);
    if (ends_with(name, length, index_ending))
        length -= sizeof index_ending - 1;
    else if (ends_with(name, length, ending))
        length -= sizeof ending - 1;
    TSR__REQUIRE(length > 0, "%s: '%s' has no name for the parts of a checkpoint", who, path);
    *out =
        (tsr__part_place){.folder = tsr__calloc(folder + 1, 1), .stem = tsr__calloc(length + 1, 1)};
    if (!out->folder || !out->stem) {
        tsr__part_place_finish(out);
        return TSR_ERR_NO_MEMORY;
    }
    memcpy(out->folder, path, folder);
    memcpy(out->stem, name, length);
    return TSR_OK;
}

void tsr__part_place_finish(tsr__part_place *place)
{
    tsr__free(place->folder);
    tsr__free(place->stem);
    *place = (tsr__part_place){0};
}

char *tsr__part_path(const tsr__part_place *place, int number, int of, const char *end)
{
    const size_t size = strlen(place->folder) + strlen(place->stem) + strlen(end) + 64;
    char *path = tsr__calloc(size, 1);
    if (path)
        snprintf(path, size, "%s%s-%05d-of-%05d%s%s", place->folder, place->stem, number, of,
                 ending, end);
    return path;
}

char *tsr__part_index_path(const tsr__part_place *place)
{
    const size_t size = strlen(place->folder) + strlen(place->stem) + sizeof index_ending;
    char *path = tsr__calloc(size, 1);
    if (path)
        snprintf(path, size, "%s%s%s", place->folder, place->stem, index_ending);
    return path;
}

/* Returns whether the text is "-00001-of-00002", with any digits. */
static bool is_number(const char *text)
{
    static const char form[] = "-ddddd-of-ddddd";
    for (size_t i = 0; form[i]; i++)
        if (form[i] == 'd' ? !isdigit((unsigned char)text[i]) : text[i] != form[i])
            return false;
    return true;
}

tsr__part_kind tsr__part_name_kind(const char *stem, const char *file)
{
    enum { NUMBER = 15 }; /* bytes of "-00001-of-00002" */
    tsr__part_kind kind = TSR__PART_CURRENT;
    size_t length = strlen(file);
    if (ends_with(file, length, ".previous")) {
        kind = TSR__PART_PREVIOUS;
        length -= strlen(".previous");
    } else if (ends_with(file, length, ".partial")) {
        kind = TSR__PART_PARTIAL;
        length -= strlen(".partial");
    }
    /* The temporary name of an index begins with the name of the index. */
    if (kind == TSR__PART_PARTIAL && length > NUMBER && is_number(file + length - NUMBER) &&
        ends_with(file, length - NUMBER, index_ending))
        length -= NUMBER + sizeof index_ending - 1;
    else if (length > NUMBER + sizeof ending - 1 && ends_with(file, length, ending) &&
             is_number(file + length - NUMBER - sizeof ending + 1))
        length -= NUMBER + sizeof ending - 1;
    else
        return TSR__PART_NONE;
    const bool same = !stem || (strlen(stem) == length && memcmp(stem, file, length) == 0);
    return same && length > 0 ? kind : TSR__PART_NONE;
}
