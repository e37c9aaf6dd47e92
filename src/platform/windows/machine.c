/* Implements POSIX's functions on the machine and on the resources that the process uses. */
#include <errno.h>
#include <io.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <windows.h>
/* bcrypt.h needs the types of windows.h */
#include <bcrypt.h>

long sysconf(int name)
{
    SYSTEM_INFO system;
    MEMORYSTATUSEX memory = {.dwLength = sizeof memory};
    GetSystemInfo(&system);
    if (name == _SC_NPROCESSORS_ONLN)
        return (long)system.dwNumberOfProcessors;
    if (name == _SC_PAGESIZE)
        return (long)system.dwPageSize;
    if (name != _SC_PHYS_PAGES)
        return -1;
    return GlobalMemoryStatusEx(&memory) ? (long)(memory.ullTotalPhys / system.dwPageSize) : -1;
}

/* Treats MAP_SHARED as private, because there are no child processes that could share the
 * memory. */
void *mmap(void *address, size_t size, int protection, int flags, int descriptor, off_t offset)
{
    (void)address, (void)protection, (void)flags, (void)descriptor, (void)offset;
    void *memory = VirtualAlloc(NULL, size, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
    errno = memory ? errno : ENOMEM;
    return memory ? memory : MAP_FAILED;
}

int munmap(void *memory, size_t size)
{
    (void)size;
    return VirtualFree(memory, 0, MEM_RELEASE) ? 0 : -1;
}

ssize_t getrandom(void *data, size_t size, unsigned flags)
{
    (void)flags;
    if (BCryptGenRandom(NULL, data, (ULONG)size, BCRYPT_USE_SYSTEM_PREFERRED_RNG) == 0)
        return (ssize_t)size;
    errno = EIO;
    return -1;
}

int ioctl(int descriptor, int request, struct winsize *out)
{
    CONSOLE_SCREEN_BUFFER_INFO info;
    (void)request;
    if (!GetConsoleScreenBufferInfo((HANDLE)_get_osfhandle(descriptor), &info)) {
        errno = ENOTTY;
        return -1;
    }
    out->ws_col = (unsigned short)(info.srWindow.Right - info.srWindow.Left + 1);
    out->ws_row = (unsigned short)(info.srWindow.Bottom - info.srWindow.Top + 1);
    return 0;
}

/* Uses RtlGetVersion, because GetVersionEx gives the version of Windows 8 to programs without a
 * manifest. */
int uname(struct utsname *out)
{
    typedef LONG(WINAPI * get_version)(OSVERSIONINFOW *);
    get_version function = NULL;
    OSVERSIONINFOW version = {.dwOSVersionInfoSize = sizeof version};
    const FARPROC found = GetProcAddress(GetModuleHandleW(L"ntdll.dll"), "RtlGetVersion");
    memcpy(&function, &found, sizeof function);
    if (!function || function(&version) != 0) {
        errno = ENOSYS;
        return -1;
    }
    (void)snprintf(out->sysname, sizeof out->sysname, "Windows");
    (void)snprintf(out->release, sizeof out->release, "%lu.%lu.%lu", version.dwMajorVersion,
                   version.dwMinorVersion, version.dwBuildNumber);
#if defined(__aarch64__)
    (void)snprintf(out->machine, sizeof out->machine, "aarch64");
#else
    (void)snprintf(out->machine, sizeof out->machine, "x86_64");
#endif
    return 0;
}

static struct timeval time_of(FILETIME time)
{
    const uint64_t hundreds_of_ns = (uint64_t)time.dwHighDateTime << 32 | time.dwLowDateTime;
    return (struct timeval){.tv_sec = (long)(hundreds_of_ns / 10000000),
                            .tv_usec = (long)(hundreds_of_ns % 10000000 / 10)};
}

int getrusage(int whom, struct rusage *out)
{
    FILETIME start, end, system, user;
    *out = (struct rusage){0};
    if (whom != RUSAGE_SELF)
        return 0;
    if (!GetProcessTimes(GetCurrentProcess(), &start, &end, &system, &user)) {
        errno = EIO;
        return -1;
    }
    out->ru_utime = time_of(user);
    out->ru_stime = time_of(system);
    return 0;
}

int getloadavg(double *averages, int count)
{
    (void)averages, (void)count;
    return -1;
}
