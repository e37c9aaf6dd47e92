/* This macro makes mkstemp and realpath available. */
#define _XOPEN_SOURCE 700

#include "cli/lib/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/lib/memory.h"

static const char suffix[] = ".XXXXXX";

/* Returns true if `path` is a regular file or does not exist. *mode is the mode that the new file
 * must have. */
static bool is_replaceable(const char *path, mode_t *mode)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        const mode_t mask = (mode_t)umask(0); /* an int on Windows */
        umask(mask);
        *mode = 0666 & ~mask;
        return true;
    }
    *mode = status.st_mode & 0777;
    return S_ISREG(status.st_mode);
}

/* Returns the path to which symbolic links lead, so that a file is replaced, and not a link to
 * it. */
static char *resolve(const char *path)
{
    char *resolved = realpath(path, NULL);
    if (resolved != NULL)
        return resolved;
    char *copy = cli_alloc(strlen(path) + 1, 1);
    return strcpy(copy, path);
}

static int open_temporary(const char *target, char **temporary)
{
    size_t size = strlen(target) + sizeof suffix;
    char *path = cli_alloc(size, 1);
    snprintf(path, size, "%s%s", target, suffix);
    int file = mkstemp(path);
    *temporary = path;
    return file;
}

bool cli_output_possible(const char *path)
{
    struct stat status;
    mode_t mode;
    bool is_new = stat(path, &status) != 0;
    if (!is_new && S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        return false;
    }
    if (!is_new && access(path, W_OK) != 0)
        return false;
    if (path[0] == '\0' || !is_replaceable(path, &mode))
        return path[0] != '\0' || (errno = ENOENT, false);
    char *target = resolve(path), *temporary;
    int file = open_temporary(target, &temporary), reason = errno;
    if (file >= 0) {
        close(file);
        unlink(temporary);
    }
    free(temporary);
    free(target);
    errno = reason;
    return file >= 0;
}

bool cli_output_is_standard(const char *path)
{
    return strcmp(path, "-") == 0;
}

bool cli_output_is(const char *path, const char *other)
{
    struct stat to, from;
    const bool standard = cli_output_is_standard(path);
    if ((standard ? fstat(STDOUT_FILENO, &to) : stat(path, &to)) != 0 || stat(other, &from) != 0)
        return false;
    return S_ISREG(to.st_mode) && to.st_dev == from.st_dev && to.st_ino == from.st_ino;
}

static void release(cli_output *output)
{
    free(output->temporary);
    free(output->target);
    *output = (cli_output){0};
}

bool cli_output_begin(const char *path, cli_output *output)
{
    mode_t mode;
    *output = (cli_output){0};
    if (!cli_output_possible(path))
        return false;
    if (!is_replaceable(path, &mode)) {
        output->file = fopen(path, "w");
        return output->file != NULL;
    }
    output->target = resolve(path);
    int file = open_temporary(output->target, &output->temporary);
    if (file >= 0) {
        /* mkstemp creates files that only their owner can read, so the mode is set here. */
        (void)fchmod(file, mode);
        output->file = fdopen(file, "w");
    }
    if (output->file != NULL)
        return true;
    int reason = errno;
    if (file >= 0) {
        close(file);
        unlink(output->temporary);
    }
    release(output);
    errno = reason;
    return false;
}

/* Writes everything to the disk and closes the file. On failure sets errno. */
static bool close_file(cli_output *output)
{
    /* If an earlier write failed, stdio has not kept the reason. Then the error is EIO. */
    errno = 0;
    bool written = fflush(output->file) == 0 && !ferror(output->file);
    /* Synchronise before the file gets its name. Otherwise a crash of the system could leave an
     * empty file. */
    if (written && output->temporary != NULL)
        written = fsync(fileno(output->file)) == 0;
    const int reason = errno != 0 ? errno : EIO;
    if (fclose(output->file) != 0 && written)
        return false;
    errno = reason;
    return written;
}

/* Ends the output. If `done` is false, removes the temporary file, and the target stays as it was.
 * Keeps errno. */
static bool finish(cli_output *output, bool done)
{
    const int reason = errno;
    if (output->temporary != NULL && !done)
        unlink(output->temporary);
    release(output);
    errno = reason;
    return done;
}

bool cli_output_end(cli_output *output)
{
    bool done = close_file(output);
    if (done && output->temporary != NULL)
        done = rename(output->temporary, output->target) == 0;
    return finish(output, done);
}

bool cli_output_end_new(cli_output *output)
{
    FILE *reserved = NULL;
    bool done = close_file(output);
    if (done && output->temporary != NULL) {
        /* rename would replace a file that another process has made in the meantime. */
        reserved = fopen(output->target, "wx");
        done = reserved != NULL && fclose(reserved) == 0 &&
               rename(output->temporary, output->target) == 0;
    } else if (done) {
        errno = EEXIST;
        done = false;
    }
    const int reason = errno;
    if (reserved != NULL && !done)
        unlink(output->target);
    errno = reason;
    return finish(output, done);
}
