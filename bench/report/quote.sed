# Makes an array of C strings from a text file, with a string for each line.
s/[\\"]/\\&/g
s/.*/"&\\n",/
