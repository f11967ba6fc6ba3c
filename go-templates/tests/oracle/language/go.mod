module lynqgate.example/oracle/language

go 1.26
