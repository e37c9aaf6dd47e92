/* Declares the functions of <dirent.h>, with names in UTF-8. */
#ifndef TSR_WINDOWS_DIRENT_H
#define TSR_WINDOWS_DIRENT_H

struct dirent {
    char d_name[3 * 260 + 1]; /* a unit of UTF-16 takes at most three bytes of UTF-8 */
};

typedef struct tsr__windows_dir DIR;

DIR *opendir(const char *path);
struct dirent *readdir(DIR *folder);
int closedir(DIR *folder);

#endif
