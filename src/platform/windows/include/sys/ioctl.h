/* Declares ioctl, which only gives the size of a terminal. */
#ifndef TSR_WINDOWS_SYS_IOCTL_H
#define TSR_WINDOWS_SYS_IOCTL_H

struct winsize {
    unsigned short ws_row, ws_col;
};

#define TIOCGWINSZ 1
int ioctl(int descriptor, int request, struct winsize *out);

#endif
