// The tests share this program's precompiled headers. It does nothing.
int main() { return 0; }
