/* Runs tessera launch as a program. Its ranks are shells. */
#ifndef TESTS_LAUNCH_LAUNCHED_H
#define TESTS_LAUNCH_LAUNCHED_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct launched {
    pid_t pid;
    int status; /* exit status, or −signal */
    char *out, *err;
    double seconds;
} launched;

/* Where a test's files are, $FOLDER for its ranks: checked fixtures. */
void make_folder(void);
void remove_folder(void);
/* Two of these at a time. */
const char *in_folder(const char *name);
/* For free(). Empty where there is no such file. */
char *read_file(const char *name);

/* Where the output of jobs to be started goes instead of a file, or −1. */
extern int output_to;

/* `arguments`: those of `tessera launch`, separated by ~. */
launched start(const char *arguments);
void finish(launched *job);
launched launch(const char *arguments);
void done(launched *job);
/* A job whose two ranks write files pid.0 and pid.1, once they have. */
launched start_ready(const char *arguments);

double now(void);
void rest(double seconds);
/* Waits until a file is there, for 10 s at most. Ranks make one to say that they are ready. */
void wait_for(const char *name);

/* Whether a process that wrote its number into a file is there: a zombie is not. */
bool is_alive(const char *name);
void assert_gone(const char *name);

int count(const char *text, const char *what);
void assert_has(const char *text, const char *what);

#endif
