/* Implements POSIX's functions on the process: its environment, clock, signals and libraries. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <windows.h>

#include "platform/windows/utf16.h"

#undef pthread_cond_timedwait

/* The environment ------------------------------------------------------------------------------ */

/* Texts that getenv has returned. They are never freed, because callers keep them. */
typedef struct kept {
    struct kept *next;
    char text[];
} kept;

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static kept *all_kept;

/* Frees `text` and returns the kept copy of it, or NULL if memory is exhausted. */
static char *keep(char *text)
{
    pthread_mutex_lock(&kept_lock);
    kept *found = all_kept;
    while (found && strcmp(found->text, text) != 0)
        found = found->next;
    if (!found && (found = malloc(sizeof *found + strlen(text) + 1)) != NULL) {
        strcpy(found->text, text);
        found->next = all_kept;
        all_kept = found;
    }
    pthread_mutex_unlock(&kept_lock);
    free(text);
    return found ? found->text : NULL;
}

char *tsr__windows_getenv(const char *name)
{
    wchar_t *wide = tsr__windows_wide(name);
    const wchar_t *value = wide ? _wgetenv(wide) : NULL;
    char *text = value ? tsr__windows_utf8(value) : NULL;
    free(wide);
    return text ? keep(text) : NULL;
}

int setenv(const char *name, const char *value, int overwrite)
{
    wchar_t *wide = tsr__windows_wide(name), *wide_value = tsr__windows_wide(value);
    int result = wide && wide_value ? 0 : -1;
    if (result == 0 && (overwrite || !_wgetenv(wide)))
        result = _wputenv_s(wide, wide_value) == 0 ? 0 : -1;
    free(wide);
    free(wide_value);
    return result;
}

int unsetenv(const char *name)
{
    return setenv(name, "", 1); /* the C library removes a variable that is set to an empty text */
}

/* Time ----------------------------------------------------------------------------------------- */

static int64_t nanoseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int tsr__windows_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
                                const struct timespec *deadline)
{
    int64_t left =
        (int64_t)deadline->tv_sec * 1000000000 + deadline->tv_nsec - nanoseconds(CLOCK_MONOTONIC);
    left = left < 0 ? 0 : left;
    const int64_t until = nanoseconds(CLOCK_REALTIME) + left;
    const struct timespec date = {.tv_sec = (time_t)(until / 1000000000),
                                  .tv_nsec = (long)(until % 1000000000)};
    return pthread_cond_timedwait(condition, lock, &date);
}

int tsr__windows_nanosleep(const struct timespec *time, struct timespec *left)
{
    Sleep((DWORD)(time->tv_sec * 1000 + (time->tv_nsec + 999999) / 1000000));
    if (left)
        *left = (struct timespec){0};
    return 0;
}

int usleep(unsigned microseconds)
{
    Sleep((microseconds + 999) / 1000);
    return 0;
}

/* Signals -------------------------------------------------------------------------------------- */

static void (*handlers[NSIG])(int);
static int resets[NSIG];

/* Installs the handler again before calling it, because the C library removes a handler when it
 * calls the handler. */
static void call_handler(int number)
{
    signal(number, resets[number] ? SIG_DFL : call_handler);
    if (handlers[number])
        handlers[number](number);
}

int tsr__windows_sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
    if (before)
        *before = (struct sigaction){.sa_handler = SIG_DFL};
    if (number < 0 || number >= NSIG)
        return 0;
    if (before && handlers[number])
        before->sa_handler = handlers[number];
    if (!action)
        return 0;
    const int is_function = action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
    resets[number] = action->sa_flags & SA_RESETHAND;
    handlers[number] = is_function ? action->sa_handler : NULL;
    return signal(number, is_function ? call_handler : action->sa_handler) == SIG_ERR ? -1 : 0;
}

/* Libraries ------------------------------------------------------------------------------------ */

static _Thread_local char problem[256];

void *dlopen(const char *name, int flags)
{
    (void)flags;
    wchar_t *wide = tsr__windows_wide(name);
    HMODULE library = wide ? LoadLibraryW(wide) : NULL;
    free(wide);
    if (!library)
        (void)snprintf(problem, sizeof problem, "%s cannot be opened: error %lu", name,
                       GetLastError());
    return library;
}

void *dlsym(void *library, const char *symbol)
{
    const FARPROC found = GetProcAddress(library, symbol);
    void *address = NULL;
    memcpy(&address, &found, sizeof address);
    if (!address)
        (void)snprintf(problem, sizeof problem, "there is no %s", symbol);
    return address;
}

char *dlerror(void)
{
    return problem[0] ? problem : NULL;
}

int dlclose(void *library)
{
    return FreeLibrary(library) ? 0 : -1;
}

/* Texts ---------------------------------------------------------------------------------------- */

char *strndup(const char *text, size_t size)
{
    const size_t length = strnlen(text, size);
    char *copy = malloc(length + 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

int strerror_r(int error, char *text, size_t size)
{
    return strerror_s(text, size, error);
}
