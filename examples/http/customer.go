package main

import (
	"context"
	"fmt"
	"net/http"
)

// buy stands for whoever orders over HTTP.
func buy(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err == nil {
		fmt.Println("the customer got", answer.Status)
		err = answer.Body.Close()
	}
	return err
}
