# Makes an array of C strings of a text file, one for each line.
s/[\\"]/\\&/g
s/.*/"&\\n",/
