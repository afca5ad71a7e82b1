// The program `lockstep`: reads the command and calls its verb.
int main() { return 0; }
