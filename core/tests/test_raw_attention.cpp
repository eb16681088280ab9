#include "test_main.h"
int main() { return test_result(); }
