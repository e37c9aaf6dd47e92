#ifndef TEST_GPU_LIBRARIES_H
#define TEST_GPU_LIBRARIES_H

/* Loads the driver under test and the validation layers, so that they stay loaded. Check runs each
 * test in a forked process. If each one had to load these libraries, short tests would take twice
 * as long. Opens no device and starts no thread. If it fails, the tests load the libraries
 * themselves. */
void gpu_load_libraries(void);

#endif
