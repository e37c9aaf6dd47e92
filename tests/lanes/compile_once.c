/* Preloaded by lanes, so that processes which need the same kernel at the same time, such as the
 * ranks of a job, compile it once. When Mesa does not find a kernel in its cache of compiled
 * shaders, it compiles the kernel, and adds the result to the cache later. The first process that
 * does not find a kernel locks a byte of a file, which stands for the kernel, until the kernel is
 * in the cache or the process ends. Others wait for that. They wait for a limited time, because a
 * test may have stopped the process that compiles, or the cache may not accept files. After that, a
 * process never waits again. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    HELD_MAX = 64,
    POLL_MICROSECONDS = 5000,
    POLLS_MAX = 4000, /* 20 seconds */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* The bytes of the lock file that stand for the kernels that this process compiles. */
static off_t held[HELD_MAX];
static int held_count;
static int lock_file = -1;
static pid_t lock_owner;
static bool gave_up;

static int (*next_open64)(const char *, int, ...);
static int (*next_rename)(const char *, const char *);
static int (*next_setpriority)(__priority_which_t, id_t, int);

static void after_fork(void)
{
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* another thread may have locked it */
}

__attribute__((constructor)) static void find_functions(void)
{
    *(void **)&next_open64 = dlsym(RTLD_NEXT, "open64");
    *(void **)&next_rename = dlsym(RTLD_NEXT, "rename");
    *(void **)&next_setpriority = dlsym(RTLD_NEXT, "setpriority");
    pthread_atfork(NULL, NULL, after_fork);
}

/* Finds the byte of the lock file for a path …/mesa_shader_cache/XX/NAME, with names in base 16.
 * Returns false for other paths. */
static bool find_byte(const char *path, off_t *byte)
{
    static const char folder[] = "/mesa_shader_cache/";
    char digits[16] = {0};
    const char *found = strstr(path, folder);
    if (!found || strlen(found) != sizeof folder - 1 + 2 + 1 + 38) /* 20 bytes in base 16 */
        return false;
    memcpy(digits, found + sizeof folder - 1 + 3, 15);
    char *end;
    *byte = (off_t)strtoll(digits, &end, 16);
    return *end == '\0';
}

/* Opens the lock file. A child process needs a file of its own, because processes that share an
 * open file share its locks. Call it with the mutex locked. */
static bool open_lock_file(void)
{
    if (lock_file >= 0 && lock_owner == getpid())
        return true;
    if (lock_file >= 0)
        close(lock_file);
    held_count = 0;
    char path[4096];
    const char *folder = getenv("MESA_SHADER_CACHE_DIR");
    if (!folder || snprintf(path, sizeof path, "%s/compiling", folder) >= (int)sizeof path)
        return false;
    lock_file = next_open64(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    lock_owner = getpid();
    return lock_file >= 0;
}

static bool set_lock(off_t byte, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(lock_file, F_OFD_SETLK, &lock) == 0;
}

enum state { HELD, LOCKED, BUSY };

/* Locks the byte. Returns BUSY if another process has locked it. Returns HELD if this process has
 * locked it before, or cannot lock or no longer locks anything. */
static enum state try_to_lock(off_t byte)
{
    enum state state = HELD;
    pthread_mutex_lock(&mutex);
    if (!gave_up && open_lock_file() && held_count < HELD_MAX) {
        int i = 0;
        while (i < held_count && held[i] != byte)
            i++;
        if (i == held_count) {
            state = set_lock(byte, F_WRLCK) ? LOCKED : BUSY;
            if (state == LOCKED)
                held[held_count++] = byte;
        }
    }
    pthread_mutex_unlock(&mutex);
    return state;
}

static void unlock(off_t byte)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < held_count && lock_owner == getpid(); i++) {
        if (held[i] == byte) {
            held[i] = held[--held_count];
            set_lock(byte, F_UNLCK);
            break;
        }
    }
    pthread_mutex_unlock(&mutex);
}

int open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (!next_open64) /* a library's constructor ran before the one above */
        find_functions();
    off_t byte;
    int file = next_open64(path, flags, mode);
    if (file >= 0 || errno != ENOENT || (flags & O_ACCMODE) != O_RDONLY || !find_byte(path, &byte))
        return file;
    for (int i = 0; i <= POLLS_MAX; i++) {
        gave_up = gave_up || i == POLLS_MAX;
        const enum state state = try_to_lock(byte);
        file = state == HELD ? -1 : next_open64(path, flags, mode);
        if (file >= 0 && state == LOCKED)
            unlock(byte);
        if (file >= 0 || state != BUSY)
            break;
        usleep(POLL_MICROSECONDS);
    }
    if (file < 0)
        errno = ENOENT;
    return file;
}

int rename(const char *from, const char *to)
{
    if (!next_rename)
        find_functions();
    const int result = next_rename(from, to);
    off_t byte;
    if (result == 0 && find_byte(to, &byte))
        unlock(byte);
    return result;
}

/* Lets the thread in which Mesa writes to the cache keep its priority, because other processes wait
 * for what it writes. */
int setpriority(__priority_which_t which, id_t who, int value)
{
    if (!next_setpriority)
        find_functions();
    return which == PRIO_PROCESS && value == 19 ? 0 : next_setpriority(which, who, value);
}
