// The program `lockstep-worker`: one rank.
int main() { return 0; }
