/* <signal.h> with the part of POSIX that the library and the tool use. Windows delivers no signals
 * to threads, so masks have no effect. */
#ifndef TSR_WINDOWS_SIGNAL_H
#define TSR_WINDOWS_SIGNAL_H

#include <sys/types.h>

#include_next <signal.h>

#ifndef _POSIX
typedef _sigset_t sigset_t;
#endif

/* Signals that Windows lacks. sigaction ignores them. */
enum { SIGHUP = 101, SIGXFSZ, SIGPIPE, SIGBUS, SIGTRAP, SIGSYS, SIGQUIT, SIGKILL };

struct sigaction {
    void (*sa_handler)(int);
    sigset_t sa_mask;
    int sa_flags;
};

/* Installs a handler, which stays installed after a signal unless SA_RESETHAND is set, as in
 * POSIX. */
int tsr__windows_sigaction(int number, const struct sigaction *action, struct sigaction *before);
#define sigaction(...) tsr__windows_sigaction(__VA_ARGS__)

#define sigemptyset(set) ((void)(*(set) = 0))
#define sigfillset(set) ((void)(*(set) = ~(sigset_t)0))
#define sigaddset(set, number) ((void)(*(set) |= (sigset_t)1 << (number) % 32))
#define sigismember(set, number) ((*(set) >> (number) % 32 & 1) != 0)
#define sigdelset(set, number) ((void)(*(set) &= ~((sigset_t)1 << (number) % 32)))

#define SA_RESETHAND 1
#define SA_RESTART 2 /* changes nothing: here, signals never interrupt a call */

#define SIG_BLOCK 0
#define SIG_UNBLOCK 1
#define SIG_SETMASK 2
#undef pthread_sigmask
#define pthread_sigmask(how, set, before) ((void)(set), (void)(before), 0)

#endif
