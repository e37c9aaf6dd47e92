/* ioctl, for the size of a terminal only. */
#ifndef TSR_WINDOWS_SYS_IOCTL_H
#define TSR_WINDOWS_SYS_IOCTL_H

struct winsize {
    unsigned short ws_row, ws_col;
};

#define TIOCGWINSZ 1
int ioctl(int descriptor, int request, struct winsize *out);

#endif
