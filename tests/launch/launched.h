/* Functions that run tessera launch as a program. Its ranks are shells. */
#ifndef TESTS_LAUNCH_LAUNCHED_H
#define TESTS_LAUNCH_LAUNCHED_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct launched {
    pid_t pid;
    int status; /* the exit status, or minus the signal's number */
    char *out, *err;
    double seconds;
} launched;

/* Checked fixtures: make and remove a test's folder for files. Its ranks find its path in
 * $FOLDER. */
void make_folder(void);
void remove_folder(void);
/* Returns the path of a file in that folder. At most two results are valid at a time. */
const char *in_folder(const char *name);
/* Returns the text of a file in that folder, for free(); empty if there is none. */
char *read_file(const char *name);

/* Where the standard output of jobs goes that are started next: a descriptor, or −1 for a file. */
extern int output_to;

/* Opens a terminal, and returns the end that a person sees and types at. ptsname() has the name
 * of the other end. */
int open_screen(void);

/* Writes a file in that folder. */
void write_file(const char *name, const char *text);

/* Starts `tessera launch` with these arguments, which are separated by ~. */
launched start(const char *arguments);
/* Waits for the job's end and reads its output. */
void finish(launched *job);
/* Starts a job and waits for its end. */
launched launch(const char *arguments);
/* Frees the output of a job. */
void done(launched *job);
/* Starts a job whose two ranks write their numbers to pid.0 and pid.1, and
 * waits for these files. */
launched start_ready(const char *arguments);

double now(void);
/* Pauses between two checks of a condition for which a test waits. */
void pause_briefly(void);
/* Waits until a file has contents, for a minute at most. Ranks write one when they are ready. */
void wait_for(const char *name);
/* Waits until `name`, the file of the job's standard output or error, contains `what` `times`
 * times. */
void wait_for_text(const char *name, const char *what, int times);
/* Sends a signal to the launcher, and waits until the launcher has received it. */
void send_signal(const launched *job, int number);

/* Returns whether the process whose number is in a file is alive. A zombie is not. */
bool is_alive(const char *name);
/* Waits until that process is not alive, for a minute at most. */
void assert_gone(const char *name);

/* Returns how often `what` occurs. */
int count(const char *text, const char *what);
void assert_has(const char *text, const char *what);

#endif
